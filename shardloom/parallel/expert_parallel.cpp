#include "shardloom/parallel/expert_parallel.h"

#include "shardloom/base/error.h"
#include "shardloom/nn/module_names.h"

namespace shardloom::parallel {
namespace {

using distributed::Group;

// Each call has a dispatcher of its own: recomputation may run it again in between.
class ExpertDispatch : public nn::CallWrapper {
 public:
  ExpertDispatch(const ExpertPlan& plan, std::shared_ptr<Group> group, const std::string& name)
      : kind_(plan.dispatcher),
        num_experts_(plan.num_experts),
        group_(std::move(group)),
        label_("experts " + name) {}

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    const std::vector<at::Tensor*> inputs = call->inputs();
    const at::Tensor x = *inputs.at(0), weights = *inputs.at(1), experts = *inputs.at(2);
    const auto dispatcher = make_token_dispatcher(kind_, num_experts_, group_, label_);
    const TokenDispatcher::Local local = dispatcher->dispatch(x, weights, experts);
    *inputs[0] = local.x;
    *inputs[1] = local.weights;
    *inputs[2] = local.experts;
    inner();
    at::Tensor* output = call->outputs().at(0);
    *output = dispatcher->combine(*output);
    *inputs[0] = x;
    *inputs[1] = weights;
    *inputs[2] = experts;
  }

 private:
  DispatcherKind kind_;
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
    experts.add_wrapper(std::make_shared<ExpertDispatch>(plan, group, name));
  }
}

}  // namespace shardloom::parallel
