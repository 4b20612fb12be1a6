#include "shardloom/parallel/token_dispatcher.h"

#include <numeric>

#include "shardloom/distributed/autograd_collectives.h"

namespace shardloom::parallel {
namespace {

using distributed::Group;

class LocalDispatcher : public TokenDispatcher {
 public:
  Local dispatch(const at::Tensor& x,
                 const at::Tensor& weights,
                 const at::Tensor& experts) override {
    return {x, weights, experts};
  }
  at::Tensor combine(const at::Tensor& y) override { return y; }
};

// What both exchanges between ranks know.
class ExchangeDispatcher : public TokenDispatcher {
 public:
  ExchangeDispatcher(int64_t num_experts, std::shared_ptr<Group> group, std::string label)
      : num_local_(num_experts / group->size()),
        group_(std::move(group)),
        label_(std::move(label)) {}

 protected:
  const int64_t num_local_;  // experts of each rank
  const std::shared_ptr<Group> group_;
  const std::string label_;
};

class AllToAllDispatcher : public ExchangeDispatcher {
 public:
  using ExchangeDispatcher::ExchangeDispatcher;

  Local dispatch(const at::Tensor& x,
                 const at::Tensor& weights,
                 const at::Tensor& experts) override {
    weights_ = weights;
    const at::Tensor slots = experts.reshape({-1});
    order_ = std::get<1>(slots.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
    const at::Tensor all_counts = exchange_counts(slots);
    const at::Tensor rows = x.index_select(0, order_.div(experts.size(1), "floor"));
    Local local;
    local.x = distributed::all_to_all_rows(rows, received_, sent_, group_, label_);
    local.experts = local_ids(all_counts).to(x.device());
    local.weights = at::ones(local.experts.sizes(), weights.options().requires_grad(false));
    return local;
  }

  at::Tensor combine(const at::Tensor& y) override {
    const at::Tensor rows =
        distributed::all_to_all_rows(y, sent_, received_, group_, label_ + ", back");
    const at::Tensor back = at::empty_like(order_);
    back.index_copy_(0, order_, at::arange(order_.size(0), order_.options()));
    const at::Tensor values = rows.index_select(0, back)
                                  .view({weights_.size(0), weights_.size(1), rows.size(1)})
                                  .to(at::kFloat);
    return (values * weights_.to(at::kFloat).unsqueeze(2)).sum(1).to(y.scalar_type());
  }

 private:
  // [ranks, ranks, own experts]: slots that each rank sends to each expert; fills the splits.
  at::Tensor exchange_counts(const at::Tensor& slots) {
    const int64_t ranks = group_->size();
    const at::Tensor own = at::bincount(slots, {}, num_local_ * ranks).to(at::kLong);
    const at::Tensor all = at::empty({ranks, num_local_ * ranks}, own.options());
    group_->all_gather(all.view({-1}), own, label_ + ", counts").wait();
    const at::Tensor counts = all.to(at::kCPU).view({ranks, ranks, num_local_});
    const at::Tensor per_rank = counts.sum(2);
    sent_.clear();
    received_.clear();
    for (int64_t r = 0; r < ranks; ++r) {
      sent_.push_back(per_rank[group_->rank()][r].item<int64_t>());
      received_.push_back(per_rank[r][group_->rank()].item<int64_t>());
    }
    return counts;
  }

  // The rows arrive from each rank in turn, each rank's in the order of the experts.
  at::Tensor local_ids(const at::Tensor& counts) const {
    const at::Tensor own = counts.select(1, group_->rank()).reshape({-1});
    const at::Tensor ids = at::arange(num_local_, at::kLong).repeat({group_->size()});
    return ids.repeat_interleave(own).unsqueeze(1);
  }

  at::Tensor weights_;
  at::Tensor order_;  // slots sorted by expert
  std::vector<int64_t> sent_, received_;
};

class AllGatherDispatcher : public ExchangeDispatcher {
 public:
  using ExchangeDispatcher::ExchangeDispatcher;

  Local dispatch(const at::Tensor& x,
                 const at::Tensor& weights,
                 const at::Tensor& experts) override {
    exchange_lengths(x.size(0));
    const auto gather = [&](const at::Tensor& part, const char* what) {
      return distributed::gather_along(part, 0, lengths_, group_, label_ + what);
    };
    const at::Tensor ids = gather(experts, ", ids").reshape({-1}) - group_->rank() * num_local_;
    const at::Tensor slots = at::nonzero(ids.ge(0).logical_and(ids.lt(num_local_))).squeeze(1);
    tokens_ = slots.div(experts.size(1), "floor");
    Local local;
    local.x = gather(x, "").index_select(0, tokens_);
    local.weights = gather(weights, ", weights").reshape({-1}).index_select(0, slots).unsqueeze(1);
    local.experts = ids.index_select(0, slots).unsqueeze(1);
    return local;
  }

  at::Tensor combine(const at::Tensor& y) override {
    const int64_t all = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
    const at::Tensor sums = at::zeros({all, y.size(1)}, y.options().dtype(at::kFloat))
                                .index_add(0, tokens_, y.to(at::kFloat));
    return distributed::reduce_along(sums, 0, lengths_, group_, label_ + ", back")
        .to(y.scalar_type());
  }

 private:
  void exchange_lengths(int64_t own) {
    const at::Tensor all = at::empty({group_->size()}, at::kLong);
    group_->all_gather(all, at::full({1}, own, at::kLong), label_ + ", lengths").wait();
    const auto* values = all.const_data_ptr<int64_t>();
    lengths_.assign(values, values + group_->size());
  }

  std::vector<int64_t> lengths_;  // tokens of each rank
  at::Tensor tokens_;             // of all ranks' tokens, the one of each row of Local
};

}  // namespace

std::unique_ptr<TokenDispatcher> make_token_dispatcher(DispatcherKind kind,
                                                       int64_t num_experts,
                                                       const std::shared_ptr<Group>& group,
                                                       const std::string& label) {
  if (group->size() == 1) return std::make_unique<LocalDispatcher>();
  if (kind == DispatcherKind::kAllGather)
    return std::make_unique<AllGatherDispatcher>(num_experts, group, label);
  return std::make_unique<AllToAllDispatcher>(num_experts, group, label);
}

}  // namespace shardloom::parallel
