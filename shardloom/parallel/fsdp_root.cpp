#include "shardloom/parallel/fsdp_root.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "shardloom/base/error.h"

namespace shardloom::parallel {
namespace {

// Name of each module below the root's; "(root)" for itself.
std::string unit_name(nn::Module& root, const FsdpState& state) {
  std::string text;
  for (const auto& [name, module] : root.named_modules()) {
    const auto& own = state.modules();
    if (std::find(own.begin(), own.end(), module) == own.end()) continue;
    text += (text.empty() ? "" : "+") + (name.empty() ? "(root)" : name);
  }
  return text;
}

}  // namespace

void FsdpRoot::establish(FsdpState& root) {
  if (root.modules().size() > 1) {
    throw ConfigError(
        "fully_shard: a list of {} modules ran forward before the root; shard one root module "
        "above "
        "them",
        root.modules().size());
  }
  nn::Module& module = *root.modules()[0];
  auto shared = std::make_shared<FsdpRoot>();
  shared->states_ = FsdpState::below(module);
  for (FsdpState* state : shared->states_) {
    if (state->root() == nullptr) continue;
    throw ConfigError(
        "fully_shard: {} ran forward by itself before the root module; run forward through the "
        "root "
        "first",
        unit_name(module, *state));
  }
  shared->parameters_ = module.named_parameters();
  shared->context_->listener = root.listener;
  for (FsdpState* state : shared->states_) {
    state->join(shared);
    state->find_enclosed();
    ParamGroup* group = state->group();
    if (group == nullptr) continue;
    group->set_context(shared->context_);
    group->set_unit_name(unit_name(module, *state));
    if (state == &root && group->is_reshard_automatic) group->reshard_after_forward = false;
  }
  for (FsdpState* state : shared->states_) {
    if (state->group() != nullptr) state->group()->prepare();
  }
}

void FsdpRoot::recover() {
  // Callbacks of a backward that threw never run.
  if (is_callback_queued_ && torch::autograd::get_current_graph_task_id() == -1) reset();
}

void FsdpRoot::begin_forward() {
  if (const auto wait = std::exchange(states_[0]->post_optim_event, nullptr)) wait();
  is_in_forward_ = true;
  next_in_order_ = 0;
}

void FsdpRoot::end_forward() {
  is_in_forward_ = false;
  is_first_run_over_ = true;
  for (FsdpState* state : states_) {
    if (!is_root(*state)) state->complete_forward();
  }
  for (; next_in_order_ < unit_order().size(); ++next_in_order_)
    unit_order()[next_in_order_]->idle_forward();
}

void FsdpRoot::abandon_forward() { reset(); }

void FsdpRoot::run_skipped_before(FsdpState& state) {
  if (!is_first_run_over_ && !is_root(state) && state.group() != nullptr)
    first_run_order_.push_back(state.group()->unit_name());
  if (!is_in_forward_ || unit_order().empty()) return;
  const auto place = std::find(unit_order().begin() + static_cast<ptrdiff_t>(next_in_order_),
                               unit_order().end(), &state);
  if (place == unit_order().end()) return;
  const auto index = static_cast<size_t>(place - unit_order().begin());
  for (; next_in_order_ < index; ++next_in_order_) unit_order()[next_in_order_]->idle_forward();
  ++next_in_order_;
}

void FsdpRoot::record_forward(FsdpState& state) { forward_order_.push_back({&state}); }

bool FsdpRoot::is_in_unit_order(const FsdpState& state) const {
  return std::find(unit_order().begin(), unit_order().end(), &state) != unit_order().end();
}

// Gradients reach what is registered behind a trained parameter. All ranks must come to the same
// answer, so the tensors at hand do not count.
bool FsdpRoot::expects_gradients(const FsdpState& state) const {
  if (!at::GradMode::is_enabled() || state.group() == nullptr || !is_in_unit_order(state))
    return false;
  if (state.group()->has_trained_parameters()) return true;
  const at::Tensor* own = state.group()->params()[0]->sites()[0].tensor;
  for (const nn::NamedTensor& parameter : parameters_) {
    if (parameter.tensor == own) return false;
    if (parameter.tensor->requires_grad()) return true;
  }
  return false;
}

void FsdpRoot::begin_backward_of(FsdpState& state) {
  if (!is_callback_queued_) {
    is_callback_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [self = shared_from_this()] { self->finish_backward(); });
  }
  last_reached_ = 0;
  for (size_t i = forward_order_.size(); i-- > 0;) {
    if (forward_order_[i].state != &state || forward_order_[i].reached) continue;
    catch_up_backward(i + 1, &state);
    forward_order_[i].reached = true;
    last_reached_ = i;
    return;
  }
}

// Among the first `end` forwards there is one of this unit that backward has not reached.
bool FsdpRoot::has_unreached(const FsdpState& state, size_t end) const {
  return std::any_of(
      forward_order_.begin(), forward_order_.begin() + static_cast<ptrdiff_t>(end),
      [&](const ForwardEntry& entry) { return entry.state == &state && !entry.reached; });
}

bool FsdpRoot::is_recomputing(const FsdpState& state) const {
  return torch::autograd::get_current_graph_task_id() != -1 &&
         (state.phase == FsdpState::Phase::kPreBackward ||
          has_unreached(state, forward_order_.size()));
}

// Units whose outputs backward will not reach on this rank: other ranks may have reached them, in
// this order. A unit of the order is reduced here at the latest, whether or not its inputs need a
// gradient, which a rank that skipped it cannot know.
void FsdpRoot::catch_up_backward(size_t first, const FsdpState* reached) {
  if (!is_last_backward()) return;
  for (size_t i = forward_order_.size(); i-- > first;) {
    ForwardEntry& entry = forward_order_[i];
    FsdpState& state = *entry.state;
    if (state.phase != (entry.reached ? FsdpState::Phase::kPreBackward : FsdpState::Phase::kIdle))
      continue;
    const bool reduces = is_in_unit_order(state) && !has_unreached(state, i);
    if ((entry.reached && !reduces) || (reached != nullptr && state.encloses(*reached))) continue;
    if (entry.reached) {
      state.post_backward(/*fill=*/true);
      continue;
    }
    if (!state.group()->awaits_gradients && state.group()->has_trained_parameters()) continue;
    entry.reached = true;
    last_reached_ = i;
    state.phase = FsdpState::Phase::kPreBackward;
    if (state.group()->unshard_in_backward) state.group()->wait_for_unshard();
    prefetch_after(state);
    if (reduces || state.inputs_need_grad) state.post_backward(/*fill=*/true);
  }
}

// Units that this backward is done with are not gathered again: a rank that caught up on them is
// ahead of one that reached them.
void FsdpRoot::prefetch_after(FsdpState& state) {
  if (state.backward_prefetch) {
    for (FsdpState* next : *state.backward_prefetch) {
      if (next->phase == FsdpState::Phase::kIdle || has_unreached(*next, forward_order_.size()))
        next->unshard();
    }
    return;
  }
  if (last_reached_ == 0) return;
  const ForwardEntry& before = forward_order_[last_reached_ - 1];
  if (before.reached && before.state->phase != FsdpState::Phase::kIdle) return;
  if (before.state->group()->unshard_in_backward) before.state->unshard();
}

void FsdpRoot::finish_backward() {
  const at::NoGradGuard no_grad;
  catch_up_backward(0, nullptr);
  for (FsdpState* state : states_) {
    if (state->phase != FsdpState::Phase::kPostBackward) {
      const bool fill = is_last_backward() && state->phase == FsdpState::Phase::kPreBackward;
      state->post_backward(fill);
    }
    state->phase = FsdpState::Phase::kIdle;
  }
  is_callback_queued_ = false;
  if (!is_last_backward()) return;
  if (context_->reducing != nullptr) context_->reducing->finish_reduction();
  for (FsdpState* state : states_) {
    // Gathers that backward never used.
    if (state->group() != nullptr && state->group()->reshard_after_backward)
      state->group()->reshard();
  }
  forward_order_.clear();
}

void FsdpRoot::reset() {
  for (FsdpState* state : states_) state->reset();
  forward_order_.clear();
  is_callback_queued_ = false;
  is_in_forward_ = false;
}

}  // namespace shardloom::parallel
