// Switch Transformer load-balancing loss (Fedus et al. 2021; transformers load_balancing_loss_func)
// over all MoE layers and all real tokens of a global batch:
//   E * sum_e f_e * P_e,  f_e = assigned_e / tokens (sums to K),  P_e = probability_e / tokens
// with both sums over the tokens of all layers. Balanced value: K. The mean of the losses of parts
// of a batch is another number; so parts give sums, which add up.
//
// Legend: T tokens, K experts per token, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace shardloom::ops {

struct RouterSums {
  at::Tensor assigned_E;     // int64: tokens that e was chosen for
  at::Tensor probability_E;  // fp32: sum of e's probability; differentiable
  template <typename F>
  void visit_tensors(F&& f) {
    if (assigned_E.defined()) f(assigned_E);
    if (probability_E.defined()) f(probability_E);
  }
};

// logits: one [T, E] a layer; mask [T]: 1 for tokens that count, or undefined.
RouterSums router_sums(const std::vector<at::Tensor>& logits_TE,
                       int64_t top_k,
                       const at::Tensor& mask_T);

// The share of the loss that comes from the tokens of `probability_E`, given `assigned_E` of the
// whole batch; the shares of all parts add up to the loss. fp32 scalar; 0 when nothing is assigned.
at::Tensor load_balancing_loss(const at::Tensor& probability_E,
                               const at::Tensor& assigned_E,
                               int64_t top_k);

}  // namespace shardloom::ops
