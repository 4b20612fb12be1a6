#include "shardloom/features/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>

#include <fmt/ranges.h>

#include "shardloom/base/error.h"

namespace shardloom::features {
namespace {

using HookStack = std::vector<std::shared_ptr<SavedTensorHooks>>;

HookStack& hook_stack() {
  thread_local HookStack stack;
  return stack;
}

// Of one saved tensor.
class TensorHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit TensorHooks(std::shared_ptr<SavedTensorHooks> hooks) : hooks_(std::move(hooks)) {}

  void call_pack_hook(const at::Tensor& variable) override {
    packed_ = hooks_->pack(variable);
    if (packed_ == nullptr) kept_ = UnchangedTensor(variable);
    hooks_.reset();
  }

  at::Tensor call_unpack_hook() override {
    return packed_ != nullptr ? packed_->unpack() : kept_.get();
  }

 private:
  std::shared_ptr<SavedTensorHooks> hooks_;  // until the tensor is packed
  std::shared_ptr<PackedTensor> packed_;
  UnchangedTensor kept_;
};

class HookEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    const HookStack& stack = hook_stack();
    if (stack.empty()) return nullptr;
    return std::make_unique<TensorHooks>(stack.back());
  }

  // Never destroyed: its threads may outlive static objects.
  static torch::autograd::Engine& instance() {
    static auto* engine = new HookEngine();
    return *engine;
  }
};

}  // namespace

SavedTensorScope::SavedTensorScope(std::shared_ptr<SavedTensorHooks> hooks) {
  install_saved_tensor_engine();
  hook_stack().push_back(std::move(hooks));
}

SavedTensorScope::~SavedTensorScope() { hook_stack().pop_back(); }

void install_saved_tensor_engine() {
  static std::once_flag once;
  std::call_once(once, [] {
    torch::autograd::set_default_engine_stub(
        []() -> torch::autograd::Engine& { return HookEngine::instance(); });
  });
}

at::Tensor UnchangedTensor::get() const {
  if (tensor_._version() != version_) {
    throw InternalError(
        "a tensor that backward needs ({} {}) was changed in place after it was saved: version {} "
        "instead of {}; make a copy before the change",
        c10::toString(tensor_.scalar_type()), c10::str(tensor_.sizes()), tensor_._version(),
        version_);
  }
  return tensor_;
}

bool is_parameter(const at::Tensor& variable) {
  if (variable.is_leaf()) return variable.requires_grad();
  if (!variable.is_view()) return false;
  const at::TensorBase& base = variable._base();
  return base.is_leaf() && base.requires_grad();
}

}  // namespace shardloom::features
