// The expert block as one operation on CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "shardloom/ops/moe.h"

namespace shardloom::ops {

// moe_experts() for CPU tensors: one pass over the experts each way, in parallel, with raw pointers
// and one block of scratch a thread. Keeps x and the gate/up products alone: expert outputs and
// permuted tokens exist for one expert at a time. Experts with few tokens are computed as if they
// had eight, so that with one thread a token's bits do not depend on how many others chose its
// experts.
at::Tensor fused_moe_experts(const at::Tensor& x_TH,
                             const Routing& routing,
                             const at::Tensor& gate_up,
                             const at::Tensor& down);

}  // namespace shardloom::ops
