#include "shardloom/parallel/expert_parallel.h"

#include <numeric>

#include "shardloom/base/error.h"
#include "shardloom/distributed/autograd_collectives.h"
#include "shardloom/nn/module_names.h"

namespace shardloom::parallel {
namespace {

using distributed::Group;

class AllToAllDispatcher : public TokenDispatcher {
 public:
  AllToAllDispatcher(int64_t num_experts, std::shared_ptr<Group> group, std::string label)
      : num_local_(num_experts / group->size()),
        group_(std::move(group)),
        label_(std::move(label)) {}

  Local dispatch(const at::Tensor& x, const at::Tensor& experts) override {
    num_tokens_ = experts.size(0);
    top_k_ = experts.size(1);
    const at::Tensor slots = experts.reshape({-1});
    order_ = std::get<1>(slots.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
    const at::Tensor all_counts = exchange_counts(slots);
    const at::Tensor rows = x.index_select(0, order_.div(top_k_, "floor"));
    Local local;
    local.x = distributed::all_to_all_rows(rows, received_, sent_, group_, label_);
    local.experts = local_ids(all_counts).to(x.device());
    return local;
  }

  at::Tensor combine(const at::Tensor& y, const at::Tensor& weights) override {
    const at::Tensor rows =
        distributed::all_to_all_rows(y, sent_, received_, group_, label_ + ", back");
    const at::Tensor back = at::empty_like(order_);
    back.index_copy_(0, order_, at::arange(order_.size(0), order_.options()));
    const at::Tensor values =
        rows.index_select(0, back).view({num_tokens_, top_k_, rows.size(1)}).to(at::kFloat);
    return (values * weights.to(at::kFloat).unsqueeze(2)).sum(1).to(y.scalar_type());
  }

 private:
  // [ranks, experts]: slots that each rank sends to each expert; fills the splits.
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

  int64_t num_local_;
  std::shared_ptr<Group> group_;
  std::string label_;
  int64_t num_tokens_ = 0, top_k_ = 0;
  at::Tensor order_;  // slots sorted by expert
  std::vector<int64_t> sent_, received_;
};

// Each call has a dispatcher of its own: recomputation may run it again in between.
class ExpertDispatch : public nn::CallWrapper {
 public:
  ExpertDispatch(int64_t num_experts, std::shared_ptr<Group> group, std::string name)
      : num_experts_(num_experts), group_(std::move(group)), label_("experts " + name) {}

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    const std::vector<at::Tensor*> inputs = call->inputs();
    const at::Tensor x = *inputs.at(0), weights = *inputs.at(1), experts = *inputs.at(2);
    const auto dispatcher = make_all_to_all_dispatcher(num_experts_, group_, label_);
    const TokenDispatcher::Local local = dispatcher->dispatch(x, experts);
    *inputs[0] = local.x;
    *inputs[1] = at::ones(local.experts.sizes(), weights.options().requires_grad(false));
    *inputs[2] = local.experts;
    inner();
    at::Tensor* output = call->outputs().at(0);
    *output = dispatcher->combine(*output, weights);
    *inputs[0] = x;
    *inputs[1] = weights;
    *inputs[2] = experts;
  }

 private:
  int64_t num_experts_;
  std::shared_ptr<Group> group_;
  std::string label_;
};

void keep_own_experts(nn::Module& module, const std::string& name, const Group& group) {
  const at::NoGradGuard no_grad;
  for (const nn::NamedTensor& p : module.named_parameters()) {
    const int64_t rows = p.tensor->size(0);
    if (rows % group.size() != 0) {
      throw ConfigError("{}.{}: {} rows do not divide among {} expert-parallel ranks", name, p.name,
                        rows, group.size());
    }
    const bool trained = p.tensor->requires_grad();
    const int64_t own = rows / group.size();
    *p.tensor = p.tensor->detach().narrow(0, group.rank() * own, own).clone();
    p.tensor->set_requires_grad(trained);
  }
}

}  // namespace

std::unique_ptr<TokenDispatcher> make_all_to_all_dispatcher(int64_t num_experts,
                                                            const std::shared_ptr<Group>& group,
                                                            const std::string& label) {
  return std::make_unique<AllToAllDispatcher>(num_experts, group, label);
}

void expert_parallel(nn::Module& root,
                     const ExpertPlan& plan,
                     const std::shared_ptr<Group>& group) {
  if (group->size() == 1) return;
  if (plan.num_experts % group->size() != 0) {
    throw ConfigError("expert parallelism: {} experts do not divide among {} ranks",
                      plan.num_experts, group->size());
  }
  const nn::ModulesByName modules(root);
  for (const std::string& name : plan.modules) {
    nn::Module& experts = modules.get(name, "expert parallelism");
    keep_own_experts(experts, name, *group);
    experts.add_wrapper(std::make_shared<ExpertDispatch>(plan.num_experts, group, name));
  }
}

}  // namespace shardloom::parallel
