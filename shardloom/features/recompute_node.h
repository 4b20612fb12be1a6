// The one node of a module's call in the graph, for RecomputeMode kReentrant.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <optional>
#include <string>

#include "shardloom/features/repeatable_call.h"

namespace shardloom::features {

class RecomputeNode final : public torch::autograd::Node {
 public:
  RecomputeNode(std::string module, RepeatableCall call)
      : module_(std::move(module)), call_(std::move(call)) {}

  // Runs the call without grad mode; gradients reach its floating outputs through this node.
  static void run(const std::string& module,
                  const std::shared_ptr<nn::Call>& call,
                  const std::function<void()>& inner);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override { call_.reset(); }
  std::string name() const override { return "RecomputeBackward"; }

 private:
  std::string module_;
  std::optional<RepeatableCall> call_;  // until the node is released
};

}  // namespace shardloom::features
