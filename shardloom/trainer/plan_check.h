// Module patterns of the configuration against the modules of the model, before anything heavy is
// loaded.
#pragma once

#include <string>
#include <vector>

#include "shardloom/config/load.h"
#include "shardloom/nn/module.h"

namespace shardloom::trainer {

// Names of all modules but the root, in the order of the tree.
std::vector<std::string> module_names(nn::Module& model);

struct PlanReport {
  std::vector<std::string> problems;  // of active plans: patterns that match nothing, ...
  std::vector<std::string> warnings;  // of plans whose switch is off
};

// Matches all patterns of the configuration (freeze, fsdp_plan, ep_plan, recompute_plan, ...).
PlanReport check_plans(const config::LoadedConfig& loaded, nn::Module& model);

// Sets requires_grad of all parameters: false below the modules that `freeze` names, true
// elsewhere. Returns the number of frozen parameters' elements. Throws ConfigError for a pattern
// without a match and when nothing is left to train.
int64_t apply_freeze(const std::vector<std::string>& freeze, nn::Module& model);

}  // namespace shardloom::trainer
