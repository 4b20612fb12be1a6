// Mixture of experts: router and the fused expert block.
//
// Legend: T tokens, K experts per token, E experts, H hidden size, I expert intermediate size.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace shardloom::ops {

struct Routing {
  at::Tensor weights_TK;  // x's dtype; differentiable
  at::Tensor experts_TK;  // int64
};

// Softmax of the router logits [T, E] in fp32, the top_k largest, divided by their sum when
// `normalize` (the config's norm_topk_prob), cast to the logits' dtype (transformers
// Qwen3MoeTopKRouter). Among equals the lower id is taken first.
Routing route_top_k(const at::Tensor& logits_TE, int64_t top_k, bool normalize);

// For each token the sum over its K experts of weight * down_e(silu(gate_e(x)) * up_e(x)).
// x [T, H]; gate_up [E*H, 2I] (expert-major; gate in columns 0..I-1, up in I..2I-1); down [E*I, H].
// Permute, grouped matmul, SwiGLU, grouped matmul, unpermute as one op with its own backward: keeps
// x and the gate/up products, no tensor per expert, sums over a token's experts in ascending order.
// Experts without a token get exactly zero gradients. Low precision on CPU: products in fp32,
// stored values rounded once.
at::Tensor moe_experts(const at::Tensor& x_TH,
                       const Routing& routing,
                       const at::Tensor& gate_up,
                       const at::Tensor& down);

}  // namespace shardloom::ops
