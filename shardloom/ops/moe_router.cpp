#include "shardloom/ops/moe_router.h"

#include "shardloom/ops/moe.h"

namespace shardloom::ops {

at::Tensor top_k_ids(const at::Tensor& probabilities_TE, int64_t k) {
  const at::Tensor p = probabilities_TE.detach();
  if (!p.is_cpu())
    return std::get<1>(at::sort(p, /*stable=*/true, -1, /*descending=*/true))
        .narrow(1, 0, k)
        .contiguous();
  const at::Tensor dense = p.contiguous();
  const int64_t T = dense.size(0), E = dense.size(1);
  at::Tensor ids = at::empty({T, k}, dense.options().dtype(at::kLong));
  const float* from = dense.const_data_ptr<float>();
  int64_t* to = ids.mutable_data_ptr<int64_t>();
  at::parallel_for(0, T, 64, [&](int64_t begin, int64_t end) {
    std::vector<float> row(E);
    for (int64_t t = begin; t < end; ++t) {
      std::copy_n(from + t * E, E, row.begin());
      for (int64_t j = 0; j < k; ++j) {
        const auto best = std::max_element(row.begin(), row.end());  // the first of equals
        to[t * k + j] = best - row.begin();
        *best = -1.0f;  // below every probability
      }
    }
  });
  return ids;
}

Routing route_top_k(const at::Tensor& logits_TE, int64_t top_k, bool normalize) {
  const at::Tensor probabilities = at::softmax(logits_TE, -1, at::kFloat);
  const at::Tensor experts = top_k_ids(probabilities, top_k);
  at::Tensor weights = probabilities.gather(1, experts);
  if (normalize) weights = weights / weights.sum(-1, /*keepdim=*/true);
  return {weights.to(logits_TE.scalar_type()), experts};
}

}  // namespace shardloom::ops
