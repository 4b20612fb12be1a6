#include "shardloom/features/apply.h"

#include <map>

#include "shardloom/base/error.h"
#include "shardloom/features/chunk_loss.h"

namespace shardloom::features {
namespace {

class ModulesByName {
 public:
  explicit ModulesByName(nn::Module& root) {
    for (const auto& [name, module] : root.named_modules()) modules_.emplace(name, module);
  }

  nn::Module& get(const std::string& name, const char* feature) const {
    const auto found = modules_.find(name);
    if (found == modules_.end())
      throw ConfigError("{}: the model has no module \"{}\"", feature, name);
    return *found->second;
  }

 private:
  std::map<std::string, nn::Module*> modules_;
};

}  // namespace

std::unique_ptr<ActivationOffload> apply(nn::Module& root, const FeaturePlan& plan) {
  const ModulesByName modules(root);
  for (const std::string& name : plan.recompute)
    recompute(modules.get(name, "recompute"), name, plan.recompute_mode);
  std::unique_ptr<ActivationOffload> offload;
  if (!plan.offload.empty()) {
    std::vector<nn::Module*> blocks;
    for (const std::string& name : plan.offload)
      blocks.push_back(&modules.get(name, "activation offload"));
    offload = std::make_unique<ActivationOffload>(blocks);
  }
  if (!plan.chunk_loss.empty())
    chunk_loss(modules.get(plan.chunk_loss, "chunk loss"), plan.chunk_loss, plan.chunk_rows);
  return offload;
}

}  // namespace shardloom::features
