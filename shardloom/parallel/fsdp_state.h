// One sharded module (or list of modules) in its life between forward and backward: the wrapper on
// its calls and the autograd hooks that it leaves.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shardloom/nn/call.h"
#include "shardloom/parallel/fsdp_param_group.h"

namespace shardloom::parallel {

class FsdpRoot;

class FsdpState : public std::enable_shared_from_this<FsdpState> {
 public:
  enum class Phase { kIdle, kForward, kPreBackward, kPostBackward };

  FsdpState(std::vector<nn::Module*> modules,
            std::unique_ptr<ParamGroup> group,
            const MixedPrecisionPolicy& policy,
            nn::Module* hook_module);

  // The state of a module, null when it has none.
  static FsdpState* of(const nn::Module& module);
  // All states of the modules below `root`, pre-order, each once.
  static std::vector<FsdpState*> below(nn::Module& root);

  const std::vector<nn::Module*>& modules() const { return modules_; }
  ParamGroup* group() const { return group_.get(); }  // null: no parameter of its own
  FsdpRoot* root() const { return root_.get(); }
  void join(std::shared_ptr<FsdpRoot> root) { root_ = std::move(root); }
  // Forward of `other` runs inside that of this unit; known once there is a root.
  bool encloses(const FsdpState& other) const { return enclosed_.contains(&other); }
  void find_enclosed();

  void unshard();  // issues the gather
  void pre_forward(nn::Call& call);
  void post_forward(nn::Call& call);
  // Forward for the sake of a backward that is under way: gathers, and leaves the freeing to it.
  bool is_recomputing() const;
  void recompute(nn::Call& call, const std::function<void()>& inner);
  // forward threw.
  void abandon_forward();
  void pre_backward();
  void post_backward(bool fill);
  // The parts of pre_forward and post_forward that peers see, without a computation.
  void idle_forward();
  // Of several modules not all ran: what the last one would have done.
  void complete_forward();
  void reset();

  // The module's part of mixed precision.
  void cast_inputs(nn::Call& call) const;
  void cast_outputs(nn::Call& call) const;

  Phase phase = Phase::kIdle;
  // Backward reaches the inputs, so post_backward comes by itself.
  bool inputs_need_grad = true;
  // Settings of the root, kept here until there is one.
  bool is_last_backward = true;
  UnitListener listener;
  std::function<void()> post_optim_event;
  std::vector<FsdpState*> unit_order;

  std::vector<FsdpState*> forward_prefetch;
  std::optional<std::vector<FsdpState*>> backward_prefetch;  // nullopt: the unit before

 private:
  void ensure_root();
  void watch_inputs(nn::Call& call);
  bool watch_outputs(nn::Call& call);
  void leave_forward(bool gradients_come);
  bool is_multi_module() const { return modules_.size() > 1; }

  std::vector<nn::Module*> modules_;
  std::unique_ptr<ParamGroup> group_;
  MixedPrecisionPolicy policy_;
  nn::Module* hook_module_;  // null: gathers happen around the modules themselves
  std::shared_ptr<FsdpRoot> root_;
  std::set<const FsdpState*> enclosed_;
  std::set<const nn::Module*> modules_run_;  // of this forward, when there are several
  bool gradients_come_ = false;
};

// Gathers and frees around a module's calls; one a module.
class FsdpWrapper : public nn::CallWrapper {
 public:
  // `casts` without `hooks`: the gathers happen around another module (FullyShardOptions).
  FsdpWrapper(std::shared_ptr<FsdpState> state, bool is_owner, bool hooks)
      : state_(std::move(state)), is_owner_(is_owner), hooks_(hooks) {}
  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override;
  FsdpState* owned_state() const { return is_owner_ ? state_.get() : nullptr; }

 private:
  std::shared_ptr<FsdpState> state_;
  bool is_owner_;
  bool hooks_;
};

}  // namespace shardloom::parallel
