// A call of a module that backward can run again.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <functional>
#include <memory>
#include <vector>

#include "shardloom/features/rng_state.h"
#include "shardloom/nn/call.h"

namespace shardloom::features {

// The inputs are saved as an operation saves its own, so that hooks of a scope further outside
// (offload, another recomputation) take them.
class RepeatableCall {
 public:
  // Before the call runs.
  RepeatableCall(std::shared_ptr<nn::Call> call, std::function<void()> inner);
  // After it ran: the call lets go of its arguments, which from now on live as saved inputs alone.
  void drop_arguments();
  bool has_run() const { return has_run_; }

 private:
  friend class Repetition;
  std::shared_ptr<nn::Call> call_;
  std::function<void()> inner_;
  std::vector<at::Tensor*> arguments_;                  // of call_, valid as long as it is
  std::vector<torch::autograd::SavedVariable> inputs_;  // one an argument
  RngState rng_;
  bool has_run_ = false;
};

// One more run: on detached inputs (leaves that require grad where the first ones did), with grad
// mode and the first run's random state; its end puts everything back.
class Repetition {
 public:
  explicit Repetition(RepeatableCall& call);
  ~Repetition();
  Repetition(const Repetition&) = delete;
  Repetition& operator=(const Repetition&) = delete;

  void run() { call_.inner_(); }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }
  std::vector<at::Tensor*> outputs() { return call_.call_->outputs(); }

 private:
  static std::vector<at::Tensor> leaves_of(const RepeatableCall& call);

  RepeatableCall& call_;
  std::vector<at::Tensor> inputs_;
  RngScope rng_;
  at::AutoGradMode grad_mode_{true};
};

}  // namespace shardloom::features
