// Pages of big buffers, made in one go instead of one by one at the first write to each.
#pragma once

#include <cstddef>

namespace shardloom::checkpoint {

// Of memory that was never written to; the content of what has pages stays. A hint: kernels before
// Linux 5.14 refuse it, and the pages come one by one.
void make_pages(char* data, size_t size);

}  // namespace shardloom::checkpoint
