#include "shardloom/study/group_overrides.h"

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::study {
namespace {

constexpr const char* kUnits = "parallel.fsdp_plan.apply_modules";
constexpr const char* kMlp = "mlp1";
constexpr const char* kLanguageLayers = "language_model.model.layers.";

// Modules of InternVL3.5 for plans that the configuration does not fill.
const config::Patterns kDefaultUnits = {"vision_model.embeddings", "vision_model.encoder", kMlp,
                                        "language_model.model.layers.{*}",
                                        "language_model.lm_head"};
const config::Patterns kDefaultLayers = {"vision_model.encoder.layers.{*}",
                                         "language_model.model.layers.{*}"};
const config::Patterns kDefaultExperts = {"language_model.model.layers.{*}.mlp.experts"};

std::string list(const config::Patterns& patterns) { return "[" + join(patterns, ", ") + "]"; }

std::string switched(const char* key, bool on) {
  return fmt::format("{}={}", key, on ? "true" : "false");
}

// The units with mlp1 behind the language layers.
config::Patterns mlp_last(config::Patterns units) {
  const auto mlp = std::find(units.begin(), units.end(), kMlp);
  const auto is_layer = [](const std::string& unit) { return unit.starts_with(kLanguageLayers); };
  const auto last_layer = std::find_if(units.rbegin(), units.rend(), is_layer).base();
  if (mlp == units.end() || last_layer == units.begin()) {
    throw ConfigError(
        "{} = {} names no unit {} or no {}{{*}}: their order cannot be changed; name both, or "
        "leave "
        "the group out",
        kUnits, list(units), kMlp, kLanguageLayers);
  }
  if (mlp < last_layer) std::rotate(mlp, mlp + 1, last_layer);
  return units;
}

std::vector<std::string> plan_overrides(const Group& group, const config::LoadedConfig& loaded) {
  const config::TrainConfig& c = loaded.config;
  std::vector<std::string> result;
  const auto fill = [&result](bool empty, const char* key, const config::Patterns& patterns) {
    if (empty) result.push_back(fmt::format("{}={}", key, list(patterns)));
  };
  const config::Patterns& given = c.parallel.fsdp_plan.apply_modules;
  const config::Patterns units = given.empty() ? kDefaultUnits : given;
  if (group.mlp1_last) {
    fill(true, kUnits, mlp_last(units));
  } else {
    fill(given.empty(), kUnits, units);
  }
  if (group.ep)
    fill(c.parallel.ep_plan.apply_modules.empty(), "parallel.ep_plan.apply_modules",
         kDefaultExperts);
  if (group.recompute) {
    fill(c.features.recompute_plan.apply_modules.empty(), "features.recompute_plan.apply_modules",
         kDefaultLayers);
  }
  if (group.offload) {
    fill(c.features.activation_offload_plan.apply_modules.value_or(config::Patterns{}).empty(),
         "features.activation_offload_plan.apply_modules", kDefaultLayers);
  }
  constexpr const char* kChunked = "features.chunkloss_plan.apply_module";
  if (group.chunk_loss && !loaded.sources.contains(kChunked))
    result.push_back(fmt::format("{}=language_model.lm_head", kChunked));
  return result;
}

std::vector<std::string> batch_overrides(const Group& group, const BaseRun& base) {
  const int64_t data_ranks = group.cp ? base.nproc / 2 : base.nproc;
  const int64_t parts = data_ranks * base.gradient_accumulation_steps;
  if (base.global_batch_size % parts != 0) {
    throw ConfigError(
        "the global batch of {} cannot be split over {} data-parallel ranks x {} accumulation "
        "steps; with training.micro_batch_size and training.gradient_accumulation_steps make it a "
        "multiple of {}",
        base.global_batch_size, data_ranks, base.gradient_accumulation_steps, parts);
  }
  return {fmt::format("training.micro_batch_size={}", base.global_batch_size / parts),
          fmt::format("training.gradient_accumulation_steps={}", base.gradient_accumulation_steps),
          fmt::format("training.global_batch_size={}", base.global_batch_size)};
}

}  // namespace

BaseRun load_base_run(const std::string& config,
                      const std::vector<std::string>& overrides,
                      int nproc) {
  BaseRun base;
  base.nproc = nproc;
  base.loaded = config::load_train_config(config, overrides);
  config::LoadedConfig resolved = base.loaded;
  config::resolve_for_world(resolved, nproc);
  base.global_batch_size = *resolved.config.training.global_batch_size;
  base.gradient_accumulation_steps = *resolved.config.training.gradient_accumulation_steps;
  return base;
}

std::vector<std::string> group_overrides(const Group& group, const BaseRun& base) {
  if ((group.cp || group.ep) && base.nproc % 2 != 0) {
    throw ConfigError(
        "{} needs an even number of processes, but --nproc is {}: use --nproc 2, or "
        "leave the group out with --groups",
        group.cp ? "CP2" : "EP2", base.nproc);
  }
  std::vector<std::string> result = {
      fmt::format("parallel.ulysses_parallel_size={}", group.cp ? 2 : 1),
      fmt::format("parallel.expert_parallel_size={}", group.ep ? 2 : 1),
      "parallel.data_parallel_size=null",
      "parallel.expert_fully_shard_parallel_size=null",
      "parallel.expert_data_parallel_size=1",
      switched("features.recompute", group.recompute),
      switched("features.enable_chunk_loss", group.chunk_loss),
      switched("features.enable_dynamic_chunk_loss",
               group.chunk_loss && base.loaded.config.features.enable_dynamic_chunk_loss),
      switched("features.enable_activation_offload", group.offload),
      "training.save=null",
      "training.save_interval=0",
      "training.val_interval=0",
      "training.log_interval=1"};
  const auto append = [&result](const std::vector<std::string>& more) {
    result.insert(result.end(), more.begin(), more.end());
  };
  if (group.prefetch) {
    append({fmt::format("parallel.fsdp_plan.num_to_forward_prefetch={}", group.prefetch->first),
            fmt::format("parallel.fsdp_plan.num_to_backward_prefetch={}", group.prefetch->second)});
  }
  append(plan_overrides(group, base.loaded));
  append(batch_overrides(group, base));
  return result;
}

}  // namespace shardloom::study
