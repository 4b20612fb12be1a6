// The expert block of ATen operations, for any device: permute, grouped products with SwiGLU
// between them, unpermute. Autograd comes from the parts; every sum has a fixed order.
#pragma once

#include <ATen/core/Tensor.h>

#include "shardloom/ops/moe.h"

namespace shardloom::ops {

// Slots t*K + k of experts [T, K], sorted by expert.
struct ExpertOrder {
  at::Tensor slot_of_row;  // [T*K] int64
  at::Tensor row_of_slot;  // [T*K] int64, the inverse
  at::Tensor counts;       // [E] int64: rows of each expert
  int64_t top_k = 0;
};
ExpertOrder order_by_expert(const at::Tensor& experts_TK, int64_t num_experts);

// x [T, H] -> [T*K, H]: a row for each slot, in the order of the experts.
at::Tensor permute_tokens(const at::Tensor& x_TH, const ExpertOrder& order);

// rows [T*K, H], weights [T, K] -> [T, H]: the weighted sum of each token's rows, summed in fp32.
at::Tensor unpermute_tokens(const at::Tensor& rows,
                            const at::Tensor& weights_TK,
                            const ExpertOrder& order);

// For each expert e its `counts[e]` rows through down_e(silu(gate_e) * up_e): rows [R, H] in the
// order of the experts, gate_up [E*H, 2I], down [E*I, H] as in moe_experts() -> [R, H].
at::Tensor grouped_swiglu(const at::Tensor& rows,
                          const at::Tensor& counts,
                          const at::Tensor& gate_up,
                          const at::Tensor& down);

// moe_experts() from the above.
at::Tensor composed_moe_experts(const at::Tensor& x_TH,
                                const Routing& routing,
                                const at::Tensor& gate_up,
                                const at::Tensor& down);

}  // namespace shardloom::ops
