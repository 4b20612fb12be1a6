#include "shardloom/features/repeatable_call.h"

namespace shardloom::features {

RepeatableCall::RepeatableCall(std::shared_ptr<nn::Call> call, std::function<void()> inner)
    : call_(std::move(call)),
      inner_(std::move(inner)),
      arguments_(call_->inputs()),
      rng_(RngState::of(arguments_)) {
  for (const at::Tensor* input : arguments_) inputs_.emplace_back(*input, /*is_output=*/false);
}

void RepeatableCall::drop_arguments() {
  for (at::Tensor* argument : arguments_) argument->reset();
  has_run_ = true;
}

std::vector<at::Tensor> Repetition::leaves_of(const RepeatableCall& call) {
  std::vector<at::Tensor> leaves;
  for (const auto& saved : call.inputs_) {
    const at::Tensor input = saved.unpack();
    if (!input.defined()) {
      leaves.emplace_back();
      continue;
    }
    leaves.push_back(input.detach());
    leaves.back().set_requires_grad(input.requires_grad());
  }
  return leaves;
}

// Unpacking may run another repetition, on the same call even: it comes before all else.
Repetition::Repetition(RepeatableCall& call)
    : call_(call), inputs_(leaves_of(call)), rng_(call.rng_) {
  for (size_t i = 0; i < inputs_.size(); ++i) *call_.arguments_[i] = inputs_[i];
}

Repetition::~Repetition() {
  for (at::Tensor* argument : call_.arguments_) argument->reset();
  for (at::Tensor* output : call_.call_->outputs()) output->reset();
}

}  // namespace shardloom::features
