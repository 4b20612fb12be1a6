#include "shardloom/ops/moe_composed.h"

#include "shardloom/base/error.h"
#include "shardloom/ops/activation.h"

namespace shardloom::ops {
namespace {

// What ATen's grouped product asks of rows.
bool is_aligned(const at::Tensor& matrix) {
  constexpr int64_t kBytes = 16;
  return matrix.size(-1) * static_cast<int64_t>(matrix.element_size()) % kBytes == 0;
}

// rows [R, in], weights [E, in, out] -> [R, out], expert e taking the next counts[e] rows.
at::Tensor grouped_product(const at::Tensor& rows,
                           const at::Tensor& weights,
                           const at::Tensor& counts) {
  if (rows.size(0) > 0 && is_aligned(rows) && is_aligned(weights))
    return at::_grouped_mm(rows, weights, counts.cumsum(0, at::kInt));
  const at::Tensor host = counts.to(at::kCPU);
  const int64_t* sizes = host.const_data_ptr<int64_t>();
  const auto parts = rows.split_with_sizes(at::IntArrayRef(sizes, host.numel()));
  const auto matrices = weights.unbind(0);
  std::vector<at::Tensor> products;
  for (size_t e = 0; e < parts.size(); ++e) products.push_back(at::mm(parts[e], matrices[e]));
  return at::cat(products, 0);
}

}  // namespace

ExpertOrder order_by_expert(const at::Tensor& experts_TK, int64_t num_experts) {
  const at::Tensor slots = experts_TK.reshape({-1});
  ExpertOrder order;
  order.top_k = experts_TK.size(1);
  order.slot_of_row = std::get<1>(at::sort(slots, /*stable=*/true, 0, /*descending=*/false));
  order.row_of_slot = at::empty_like(order.slot_of_row);
  order.row_of_slot.index_copy_(0, order.slot_of_row,
                                at::arange(slots.size(0), order.slot_of_row.options()));
  order.counts = at::bincount(slots, {}, num_experts);
  return order;
}

at::Tensor permute_tokens(const at::Tensor& x_TH, const ExpertOrder& order) {
  // Repeated first and permuted then: the gradient of each token is an ordinary sum of K rows,
  // where that of a selection with repetitions would add atomically.
  const int64_t T = x_TH.size(0), H = x_TH.size(1);
  return x_TH.unsqueeze(1)
      .expand({T, order.top_k, H})
      .reshape({T * order.top_k, H})
      .index_select(0, order.slot_of_row);
}

at::Tensor unpermute_tokens(const at::Tensor& rows,
                            const at::Tensor& weights_TK,
                            const ExpertOrder& order) {
  const at::Tensor values = rows.index_select(0, order.row_of_slot)
                                .view({weights_TK.size(0), order.top_k, rows.size(1)})
                                .to(at::kFloat);
  return (values * weights_TK.to(at::kFloat).unsqueeze(2)).sum(1).to(rows.scalar_type());
}

at::Tensor grouped_swiglu(const at::Tensor& rows,
                          const at::Tensor& counts,
                          const at::Tensor& gate_up,
                          const at::Tensor& down) {
  const int64_t experts = counts.size(0), H = rows.size(1), inner = gate_up.size(1) / 2;
  SHARDLOOM_CHECK(gate_up.size(0) == experts * H && down.size(0) == experts * inner,
                  "grouped_swiglu: {} experts, width {}, gate_up has {} rows, down {}", experts, H,
                  gate_up.size(0), down.size(0));
  const at::Tensor hidden = grouped_product(rows, gate_up.view({experts, H, 2 * inner}), counts);
  const at::Tensor act = swiglu(hidden.narrow(1, 0, inner), hidden.narrow(1, inner, inner));
  return grouped_product(act, down.view({experts, inner, H}), counts);
}

at::Tensor composed_moe_experts(const at::Tensor& x_TH,
                                const Routing& routing,
                                const at::Tensor& gate_up,
                                const at::Tensor& down) {
  const ExpertOrder order = order_by_expert(routing.experts_TK, gate_up.size(0) / x_TH.size(1));
  const at::Tensor rows = grouped_swiglu(permute_tokens(x_TH, order), order.counts, gate_up, down);
  return unpermute_tokens(rows, routing.weights_TK, order);
}

}  // namespace shardloom::ops
