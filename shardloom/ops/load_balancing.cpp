#include "shardloom/ops/load_balancing.h"

#include "shardloom/ops/moe_router.h"

namespace shardloom::ops {

RouterSums router_sums(const std::vector<at::Tensor>& logits_TE,
                       int64_t top_k,
                       const at::Tensor& mask_T) {
  const at::Tensor logits = at::cat(logits_TE, 0).to(at::kFloat);
  const at::Tensor probabilities = at::softmax(logits, -1);
  const at::Tensor chosen = top_k_ids(probabilities, top_k);
  const at::Tensor mask = mask_T.defined() ? mask_T.repeat({static_cast<int64_t>(logits_TE.size())})
                                           : at::ones({logits.size(0)}, chosen.options());
  const at::Tensor counted = mask.to(at::kLong).unsqueeze(1).expand_as(chosen).contiguous();
  RouterSums sums;
  sums.assigned_E = at::zeros({logits.size(1)}, chosen.options())
                        .index_add(0, chosen.reshape({-1}), counted.reshape({-1}));
  sums.probability_E = (probabilities * mask.to(at::kFloat).unsqueeze(1)).sum(0);
  return sums;
}

at::Tensor load_balancing_loss(const at::Tensor& probability_E,
                               const at::Tensor& assigned_E,
                               int64_t top_k) {
  const at::Tensor assigned = assigned_E.to(at::kDouble);
  const at::Tensor tokens = (assigned.sum() / static_cast<double>(top_k)).clamp_min(1.0);
  const at::Tensor factors = assigned * (static_cast<double>(assigned.size(0)) / (tokens * tokens));
  return (factors.to(at::kFloat) * probability_E).sum();
}

}  // namespace shardloom::ops
