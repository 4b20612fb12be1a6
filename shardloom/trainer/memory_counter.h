// Exact bytes of tensors on the CPU: every allocation of ATen's CPU allocator is counted, current
// and peak.
#pragma once

#include <cstdint>

namespace shardloom::trainer {

// Puts the counter around ATen's CPU allocator. Call before the first tensor is made; later calls
// do nothing.
void install_memory_counter();

struct MemoryUse {
  int64_t allocated = 0;
  int64_t max_allocated = 0;
};
MemoryUse cpu_memory_use();
// The peak starts again from the bytes in use now.
void reset_peak_memory();

}  // namespace shardloom::trainer
