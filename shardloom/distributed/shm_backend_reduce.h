// Sums (and means, minima, maxima) of the parts of all ranks, element by element.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardloom::distributed {

// float, bfloat16, half, double, int64, uint8 with SUM, MIN, MAX; AVG for the floating ones.
bool can_reduce(at::ScalarType dtype, c10d::ReduceOp::RedOpType op);

// out[i] = sources[0][i] op sources[1][i] op ..., strictly in this order: floats, bf16 and halves
// in fp32 with one rounding at the end, double in fp64, integers exactly (uint8 modulo 256). AVG
// divides the sum by the number of sources. A NaN in any source gives NaN. `out` may be one of the
// sources, but not overlap one otherwise.
void reduce_in_order(at::ScalarType dtype,
                     c10d::ReduceOp::RedOpType op,
                     const std::vector<const std::byte*>& sources,
                     std::byte* out,
                     int64_t num_elements);

}  // namespace shardloom::distributed
