#include "shardloom/trainer/plan_check.h"

#include <algorithm>
#include <set>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/pattern.h"

namespace shardloom::trainer {

std::vector<std::string> module_names(nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& [name, module] : model.named_modules()) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

namespace {

// The plans whose modules get something done around their call.
const std::set<std::string> kCalled = {"parallel.fsdp_plan.apply_modules",
                                       "features.recompute_plan.apply_modules",
                                       "features.activation_offload_plan.apply_modules"};

}  // namespace

PlanReport check_plans(const config::LoadedConfig& loaded, nn::Module& model) {
  const config::TrainConfig& config = loaded.config;
  const auto names = module_names(model);
  PlanReport report;
  std::set<std::string> lists;
  for (const auto& [name, module] : model.named_modules()) {
    if (!module->is_callable()) lists.insert(name);
  }
  // A plan of modules that are called: a list of modules stands for its children nowhere.
  auto check_callable = [&](const std::vector<std::string>& patterns, const std::string& key) {
    for (const std::string& name : config::match_modules(patterns, names, key)) {
      if (!lists.contains(name)) continue;
      report.problems.push_back(
          fmt::format("{}: {}: {} is a list of modules, which is never called; write \"{}.{{*}}\"",
                      loaded.place(key).str(), key, name, name));
    }
  };
  auto check = [&](const std::vector<std::string>& patterns, const std::string& key, bool active) {
    try {
      if (patterns.empty()) return;
      config::match_patterns(patterns, names, key);
      if (active && kCalled.contains(key)) check_callable(patterns, key);
    } catch (const ConfigError& error) {
      const std::string place = loaded.place(key).str();
      for (const std::string& fault : split(error.what(), '\n')) {
        if (active) {
          report.problems.push_back(fmt::format("{}: {}", place, fault));
        } else if (loaded.sources.contains(key)) {  // a default that fits nothing is no mistake
          report.warnings.push_back(fmt::format("{}: {} (the plan is switched off)", place, fault));
        }
      }
    }
  };
  const auto& parallel = config.parallel;
  const auto& features = config.features;
  check(config.model.freeze, "model.freeze", true);
  check(parallel.fsdp_plan.apply_modules, "parallel.fsdp_plan.apply_modules", true);
  check(parallel.fsdp_plan.ignored_modules, "parallel.fsdp_plan.ignored_modules", true);
  check(parallel.fsdp_plan.hook_modules.value_or(config::Patterns{}),
        "parallel.fsdp_plan.hook_modules", true);
  check(parallel.ep_plan.apply_modules, "parallel.ep_plan.apply_modules",
        parallel.expert_parallel_size > 1);
  check(features.recompute_plan.apply_modules, "features.recompute_plan.apply_modules",
        features.recompute);
  check({features.chunkloss_plan.apply_module}, "features.chunkloss_plan.apply_module",
        features.enable_chunk_loss);
  check(features.activation_offload_plan.apply_modules.value_or(config::Patterns{}),
        "features.activation_offload_plan.apply_modules", features.enable_activation_offload);
  return report;
}

int64_t apply_freeze(const std::vector<std::string>& freeze, nn::Module& model) {
  for (const auto& p : model.named_parameters()) p.tensor->requires_grad_(true);
  if (freeze.empty()) return 0;
  const auto matched = config::match_modules(freeze, module_names(model), "model.freeze");
  const std::set<std::string> frozen(matched.begin(), matched.end());
  int64_t elements = 0;
  for (const auto& [name, module] : model.named_modules()) {
    if (!frozen.contains(name)) continue;
    for (const auto& p : module->named_parameters()) {
      if (p.tensor->requires_grad()) elements += p.tensor->numel();
      p.tensor->requires_grad_(false);
    }
  }
  const auto all = model.named_parameters();
  if (std::none_of(all.begin(), all.end(), [](const auto& p) { return p.tensor->requires_grad(); }))
    throw ConfigError("model.freeze: no parameter is left to train");
  return elements;
}

}  // namespace shardloom::trainer
