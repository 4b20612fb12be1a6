#include "shardloom/features/apply.h"

#include "shardloom/base/error.h"
#include "shardloom/features/chunk_loss.h"
#include "shardloom/nn/module_names.h"

namespace shardloom::features {
std::unique_ptr<ActivationOffload> apply(nn::Module& root, const FeaturePlan& plan) {
  const nn::ModulesByName modules(root);
  for (const std::string& name : plan.recompute)
    recompute(modules.get(name, "recompute"), name, plan.recompute_mode);
  std::unique_ptr<ActivationOffload> offload;
  if (!plan.offload.empty()) {
    std::vector<nn::Module*> blocks;
    for (const std::string& name : plan.offload) {
      blocks.push_back(&modules.get(name, "activation offload"));
      if (blocks.back()->is_callable()) continue;
      throw ConfigError(
          "activation offload: {} has no forward of its own; name the blocks below it", name);
    }
    offload = std::make_unique<ActivationOffload>(blocks);
  }
  if (!plan.chunk_loss.empty())
    chunk_loss(modules.get(plan.chunk_loss, "chunk loss"), plan.chunk_loss, plan.chunk_rows);
  return offload;
}

}  // namespace shardloom::features
