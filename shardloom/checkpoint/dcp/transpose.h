// Transposition of matrices of 1, 2, 4 or 8 byte elements, cache block by cache block.
#pragma once

#include <cstdint>

namespace shardloom::checkpoint::dcp {

// target[r * target_stride + c] = source[c * source_stride + r] for r < rows, c < columns; strides
// in elements. False, and nothing is done, for other element sizes.
bool transpose(const char* source,
               int64_t source_stride,
               char* target,
               int64_t target_stride,
               int64_t rows,
               int64_t columns,
               uint64_t element_bytes);

}  // namespace shardloom::checkpoint::dcp
