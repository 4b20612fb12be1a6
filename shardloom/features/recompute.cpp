#include "shardloom/features/recompute.h"

#include "shardloom/base/error.h"
#include "shardloom/features/recompute_frame.h"
#include "shardloom/features/recompute_node.h"

namespace shardloom::features {
namespace {

class RecomputeWrapper final : public nn::CallWrapper {
 public:
  RecomputeWrapper(std::string name, RecomputeMode mode) : name_(std::move(name)), mode_(mode) {
    install_saved_tensor_engine();
  }

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    if (!at::GradMode::is_enabled()) {
      inner();
    } else if (mode_ == RecomputeMode::kSavedTensors) {
      keep_places(call, inner);
    } else if (any_requires_grad(*call)) {
      RecomputeNode::run(name_, call, inner);
    } else {
      // Backward would not reach the node, and the parameters would get no gradient.
      inner();
    }
  }

 private:
  static bool any_requires_grad(nn::Call& call) {
    const auto inputs = call.inputs();
    return std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor* input) {
      return input->defined() && input->requires_grad();
    });
  }

  // Other wrappers (fully_shard) do not expect to be left in the middle of a call.
  static bool has_other_wrappers_below(const nn::Module& module) {
    for (const auto& [name, child] : module.children()) {
      for (const auto& wrapper : child->wrappers()) {
        if (dynamic_cast<const RecomputeWrapper*>(wrapper.get()) == nullptr) return true;
      }
      if (has_other_wrappers_below(*child)) return true;
    }
    return false;
  }

  void keep_places(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) {
    const auto frame = std::make_shared<RecomputeFrame>(name_, RepeatableCall(call, inner),
                                                        !has_other_wrappers_below(call->module()));
    {
      const SavedTensorScope scope(frame->forward_hooks());
      inner();
    }
    frame->call().drop_arguments();
  }

  std::string name_;
  RecomputeMode mode_;
};

}  // namespace

void recompute(nn::Module& module, const std::string& name, RecomputeMode mode) {
  if (!module.is_callable()) {
    throw ConfigError(
        "recompute: {} has no forward of its own to run again; name the modules below it", name);
  }
  module.add_wrapper(std::make_shared<RecomputeWrapper>(name, mode));
}

}  // namespace shardloom::features
