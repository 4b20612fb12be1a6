#include "shardloom/parallel/fsdp_state.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/parallel/fsdp_root.h"

namespace shardloom::parallel {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Identity on the inputs of a unit. Its backward runs when the unit's own backward is done.
class UnitInputs : public Node {
 public:
  explicit UnitInputs(std::shared_ptr<FsdpState> state) : state_(std::move(state)) {}
  variable_list apply(variable_list&& grads) override {
    state_->post_backward(/*fill=*/false);
    return std::move(grads);
  }
  std::string name() const override { return "FullyShardUnitInputs"; }

 private:
  std::shared_ptr<FsdpState> state_;
};

void cast(const std::vector<at::Tensor*>& tensors, std::optional<at::ScalarType> dtype) {
  if (!dtype) return;
  for (at::Tensor* tensor : tensors) {
    if (tensor->defined() && at::isFloatingType(tensor->scalar_type()))
      *tensor = tensor->to(*dtype);
  }
}

}  // namespace

FsdpState::FsdpState(std::vector<nn::Module*> modules,
                     std::unique_ptr<ParamGroup> group,
                     const MixedPrecisionPolicy& policy,
                     nn::Module* hook_module)
    : modules_(std::move(modules)),
      group_(std::move(group)),
      policy_(policy),
      hook_module_(hook_module) {}

FsdpState* FsdpState::of(const nn::Module& module) {
  for (const auto& wrapper : module.wrappers()) {
    const auto* own = dynamic_cast<const FsdpWrapper*>(wrapper.get());
    if (own != nullptr && own->owned_state() != nullptr) return own->owned_state();
  }
  return nullptr;
}

std::vector<FsdpState*> FsdpState::below(nn::Module& root) {
  std::vector<FsdpState*> states;
  for (const auto& [name, module] : root.named_modules()) {
    FsdpState* state = of(*module);
    if (state != nullptr && std::find(states.begin(), states.end(), state) == states.end())
      states.push_back(state);
  }
  return states;
}

void FsdpState::find_enclosed() {
  const std::vector<nn::Module*> outer =
      hook_module_ != nullptr ? std::vector<nn::Module*>{hook_module_} : modules_;
  for (nn::Module* module : outer) {
    const std::vector<FsdpState*> states = below(*module);
    enclosed_.insert(states.begin(), states.end());
  }
}

void FsdpState::unshard() {
  if (group_) group_->unshard();
}

void FsdpState::ensure_root() {
  if (root_ == nullptr) FsdpRoot::establish(*this);
}

void FsdpState::cast_inputs(nn::Call& call) const {
  if (policy_.cast_forward_inputs) cast(call.inputs(), policy_.param_dtype);
}

void FsdpState::cast_outputs(nn::Call& call) const { cast(call.outputs(), policy_.output_dtype); }

void FsdpState::pre_forward(nn::Call& call) {
  if (hook_module_ == nullptr) cast_inputs(call);
  ensure_root();
  root_->recover();
  if (is_multi_module() && phase == Phase::kForward && !modules_run_.empty()) {
    modules_run_.insert(&call.module());
    return;
  }
  if (root_->is_root(*this)) root_->begin_forward();
  root_->run_skipped_before(*this);
  phase = Phase::kForward;
  modules_run_ = {&call.module()};
  gradients_come_ = false;
  if (group_) group_->wait_for_unshard();
  watch_inputs(call);
  for (FsdpState* next : forward_prefetch) next->unshard();
}

bool FsdpState::is_recomputing() const { return root_ != nullptr && root_->is_recomputing(*this); }

void FsdpState::recompute(nn::Call& call, const std::function<void()>& inner) {
  if (hook_module_ == nullptr) cast_inputs(call);
  if (group_) group_->wait_for_unshard();
  inner();
  if (hook_module_ == nullptr) cast_outputs(call);
}

void FsdpState::watch_inputs(nn::Call& call) {
  inputs_need_grad = false;
  if (!at::GradMode::is_enabled()) return;
  std::vector<at::Tensor*> inputs = call.inputs();
  std::erase_if(inputs, [](const at::Tensor* t) { return !t->defined() || !t->requires_grad(); });
  if (inputs.empty()) return;
  inputs_need_grad = true;
  torch::autograd::edge_list edges;
  for (const at::Tensor* input : inputs)
    edges.push_back(torch::autograd::impl::gradient_edge(*input));
  // One node for all inputs, so that it runs when the last of their gradients is there.
  const auto node =
      std::shared_ptr<UnitInputs>(new UnitInputs(shared_from_this()), torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  for (at::Tensor* input : inputs) {
    at::Tensor passed;
    {
      const at::NoGradGuard no_grad;
      passed = input->detach();
    }
    torch::autograd::impl::set_gradient_edge(passed, {node, node->add_input_metadata(passed)});
    *input = passed;
  }
}

bool FsdpState::watch_outputs(nn::Call& call) {
  if (!at::GradMode::is_enabled()) return false;
  bool watched = false;
  for (const at::Tensor* output : call.outputs()) {
    if (!output->defined() || !output->requires_grad()) continue;
    watched = true;
    output->register_hook([self = shared_from_this()](const at::Tensor&) { self->pre_backward(); });
  }
  return watched;
}

void FsdpState::post_forward(nn::Call& call) {
  gradients_come_ = watch_outputs(call) || gradients_come_;
  if (root_->is_root(*this)) root_->end_forward();
  const bool all_ran = !is_multi_module() || modules_run_.size() == modules_.size();
  // Nobody completes what runs outside the root's forward.
  if (all_ran || !root_->is_in_forward())
    leave_forward(gradients_come_ || root_->expects_gradients(*this));
  if (hook_module_ == nullptr) cast_outputs(call);
}

void FsdpState::leave_forward(bool gradients_come) {
  if (group_) {
    group_->reshard_after_forward_if_asked(gradients_come);
    if (gradients_come && group_->has_trained_parameters()) group_->awaits_gradients = true;
  }
  if (gradients_come && group_) root_->record_forward(*this);
  modules_run_.clear();
  phase = Phase::kIdle;
}

void FsdpState::complete_forward() {
  if (phase == Phase::kForward) leave_forward(gradients_come_ || root_->expects_gradients(*this));
}

void FsdpState::idle_forward() {
  if (group_) group_->wait_for_unshard();
  for (FsdpState* next : forward_prefetch) next->unshard();
  leave_forward(root_->expects_gradients(*this));
}

void FsdpState::abandon_forward() {
  if (root_ != nullptr && root_->is_root(*this)) {
    root_->abandon_forward();
  } else {
    reset();
  }
}

void FsdpState::reset() {
  phase = Phase::kIdle;
  modules_run_.clear();
  if (group_) group_->reset();
}

void FsdpState::pre_backward() {
  if (phase == Phase::kPreBackward) return;
  const at::NoGradGuard no_grad;
  root_->begin_backward_of(*this);
  phase = Phase::kPreBackward;
  if (group_ && group_->unshard_in_backward) group_->wait_for_unshard();
  root_->prefetch_after(*this);
}

void FsdpState::post_backward(bool fill) {
  phase = Phase::kPostBackward;
  if (group_) group_->reduce_gradients(fill);
}

void FsdpWrapper::around(const std::shared_ptr<nn::Call>& call,
                         const std::function<void()>& inner) {
  if (!hooks_) {
    state_->cast_inputs(*call);
    inner();
    state_->cast_outputs(*call);
    return;
  }
  if (state_->is_recomputing()) return state_->recompute(*call, inner);
  try {
    state_->pre_forward(*call);
    inner();
    state_->post_forward(*call);
  } catch (...) {
    state_->abandon_forward();
    throw;
  }
}

}  // namespace shardloom::parallel
