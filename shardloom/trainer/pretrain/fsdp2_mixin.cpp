#include "shardloom/trainer/pretrain/fsdp2_mixin.h"

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/pattern.h"
#include "shardloom/config/places.h"
#include "shardloom/nn/module_names.h"
#include "shardloom/trainer/plan_check.h"

namespace shardloom {
namespace {

// What `apply` finds wrong with a list of modules stands where fsdp2_config.yaml gives the list.
template <typename Function>
void at_place_of(const Fsdp2Config& config, const char* key, Function&& apply) {
  try {
    apply();
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", config::place_in(config.sources, key).str(), error.what());
  }
}

}  // namespace

trainer::ParallelModel FSDP2Mixin::fully_shard(const config::TrainConfig& config,
                                               const distributed::ParallelMeshes& meshes,
                                               const Fsdp2Config& fsdp2_config) {
  models::Model& root = model();
  plan_ = trainer::sharding_plan(config, root, meshes);
  auto expert_loads = trainer::cut_model(config, root, meshes);
  features::FeaturePlan features = trainer::feature_plan(config, root);
  features.recompute.clear();  // belongs to _fully_shard()
  auto offload = features::apply(root, features);
  parallel::ignore_parameters(root, plan_);
  parallel::shard_experts(root, plan_);
  _fully_shard({meshes.fully_shard, plan_.options}, fsdp2_config);
  if (!parallel::FsdpModule::is_sharded(root)) {
    throw ConfigError(
        "_fully_shard() did not shard the model itself; end it with "
        "set_fullyshard_modules_to_wrap() or parallel::fully_shard() of the model");
  }
  return {parallel::set_up_root(root, plan_), std::move(offload), std::move(expert_loads)};
}

void FSDP2Mixin::_fully_shard(const Fsdp2Kwargs& fsdp2_kwargs, const Fsdp2Config& fsdp2_config) {
  at_place_of(fsdp2_config, "recompute_modules", [&] {
    set_recompute_modules_to_wrap(fsdp2_config.recompute_modules, fsdp2_config.use_reentrant);
  });
  at_place_of(fsdp2_config, "sub_modules_to_wrap", [&] {
    set_fullyshard_modules_to_wrap(fsdp2_config.sub_modules_to_wrap, fsdp2_kwargs);
  });
  set_modules_to_prefetch(fsdp2_config.sub_modules_to_wrap, fsdp2_config.num_to_forward_prefetch,
                          fsdp2_config.num_to_backward_prefetch);
}

std::vector<std::string> FSDP2Mixin::in_tree_order(const config::Patterns& modules,
                                                   const char* key) {
  if (modules.empty()) return {};
  std::vector<std::string> names = trainer::module_names(model());
  const std::vector<std::string> wanted = config::match_modules(modules, names, key);
  std::erase_if(names, [&](const std::string& name) { return !contains(wanted, name); });
  return names;
}

void FSDP2Mixin::set_recompute_modules_to_wrap(const config::Patterns& modules,
                                               bool use_reentrant) {
  features::FeaturePlan plan;
  plan.recompute = in_tree_order(modules, "recompute_modules");
  config::check_not_nested(plan.recompute, "recompute_modules");
  if (use_reentrant) plan.recompute_mode = features::RecomputeMode::kReentrant;
  features::apply(model(), plan);
}

void FSDP2Mixin::set_fullyshard_modules_to_wrap(const config::Patterns& modules,
                                                const Fsdp2Kwargs& fsdp2_kwargs) {
  parallel::ShardingPlan plan = plan_;
  plan.options = fsdp2_kwargs.options;
  plan.units = in_tree_order(modules, "sub_modules_to_wrap");
  std::erase_if(plan.units,
                [&](const std::string& unit) { return contains(plan_.expert_units, unit); });
  parallel::shard_units(model(), fsdp2_kwargs.mesh, plan);
}

void FSDP2Mixin::set_modules_to_prefetch(const config::Patterns& modules,
                                         int64_t num_to_forward_prefetch,
                                         int64_t num_to_backward_prefetch) {
  parallel::ShardingPlan plan = plan_;
  plan.units = in_tree_order(modules, "sub_modules_to_wrap");
  plan.forward_prefetch = static_cast<int>(num_to_forward_prefetch);
  plan.backward_prefetch = static_cast<int>(num_to_backward_prefetch);
  parallel::set_prefetch(model(), plan);
}

}  // namespace shardloom
