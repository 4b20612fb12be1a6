// Activation recomputation (torch.utils.checkpoint; Chen et al. 2016): the calls of a module keep
// their inputs alone, and backward runs the module again for what it needs.
//
// The second run has the first one's random state, its grad mode and detached inputs; it draws the
// same dropout masks, and the generators go on as if it had not been. Gradients are bit-equal to
// those without recomputation as long as the module computes the same twice, which is checked.
#pragma once

#include <string>

#include "shardloom/nn/module.h"

namespace shardloom::features {

enum class RecomputeMode {
  // Saved tensors are replaced one by one (torch's use_reentrant=False). Any graph, any backward:
  // several with retain_graph, of a part of the graph, nested recomputed modules. The second run
  // stops where the last needed tensor is there.
  kSavedTensors,
  // One node of the graph stands for the module and runs a backward pass of its own
  // (use_reentrant=True). Only Tensor::backward() of all leaves, not torch::autograd::grad(); what
  // needs a gradient must be among the tensors of the call (nn/call.h). A call without an input
  // that needs one runs as if the wrapper was not there.
  kReentrant,
};

// Adds the wrapper to `module`, whose name in messages is `name`. To be added before activation
// offload and fully_shard, which stand around it. Throws ConfigError for a module that has no
// forward of its own (a list, a group of modules).
//
// Backward throws InternalError, with the name of the module and the first tensor that differs,
// when the second run saves other tensors (number, shape, type, device) than the first.
void recompute(nn::Module& module,
               const std::string& name,
               RecomputeMode mode = RecomputeMode::kSavedTensors);

}  // namespace shardloom::features
