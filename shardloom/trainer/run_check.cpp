#include "shardloom/trainer/run_check.h"

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/config/size_rules.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/load_source.h"
#include "shardloom/trainer/plan_check.h"
#include "shardloom/trainer/plugin.h"

namespace shardloom::trainer {
namespace {

// The rules that need the model; resolve_sizes() has checked the others.
std::vector<std::string> check_model_sizes(const config::LoadedConfig& loaded,
                                           int64_t world,
                                           const models::ModelFacts& facts) {
  const config::TrainConfig& config = loaded.config;
  config::SizeInputs sizes;
  sizes.world = world;
  sizes.cp = config.parallel.ulysses_parallel_size;
  sizes.ep = config.parallel.expert_parallel_size;
  sizes.heads = facts.heads;
  sizes.kv_heads = facts.kv_heads;
  sizes.vision_heads = facts.vision_heads;
  sizes.vision_tokens = facts.vision_tokens;
  sizes.experts = facts.experts;
  sizes.top_k = facts.top_k;
  std::vector<std::string> problems;
  for (const config::BrokenRule& rule : config::check_sizes(sizes).broken) {
    if (rule.of_model)
      problems.push_back(fmt::format("{}: {}", loaded.place(rule.key).str(), rule.message));
  }
  return problems;
}

// A data set that no list has is found by its first use otherwise.
void check_dataset_type(const config::LoadedConfig& loaded, std::vector<std::string>& problems) {
  const std::string key = "data.dataset_param.dataset_type";
  try {
    data::dataset_registry().get(loaded.config.data.dataset_param.dataset_type);
  } catch (const ConfigError& error) {
    problems.push_back(fmt::format("{}: {}", loaded.place(key).str(), error.what()));
  }
}

void throw_if_any(const std::vector<std::string>& problems) {
  if (!problems.empty()) throw ConfigError("{}", join(problems, "\n"));
}

}  // namespace

std::shared_ptr<models::Model> check_run(config::LoadedConfig& loaded,
                                         int64_t world,
                                         const TrainerParts& parts,
                                         TokenIds token_ids) {
  std::vector<std::string> problems = config::resolve_sizes(loaded, world);
  const auto add = [&](const std::vector<std::string>& more) {
    problems.insert(problems.end(), more.begin(), more.end());
  };
  const std::vector<std::string> paths = config::check_paths(loaded);
  add(paths);
  if (!paths.empty()) throw_if_any(problems);  // no model without its folder

  try {
    find_load_source(loaded.config);
  } catch (const CheckpointError& error) {
    add({fmt::format("{}: training.load: {}", loaded.place("training.load").str(), error.what())});
  }
  load_plugins(loaded.config.training.plugin);
  if (parts.data_is_of_config) check_dataset_type(loaded, problems);
  auto model = parts.build_model(loaded.config, token_ids);
  if (const auto facts = model->facts()) add(check_model_sizes(loaded, world, *facts));
  const PlanReport plans = check_plans(loaded, *model);
  loaded.warnings.insert(loaded.warnings.end(), plans.warnings.begin(), plans.warnings.end());
  add(plans.problems);
  throw_if_any(problems);
  return model;
}

std::vector<std::string> missing_inputs(const config::TrainConfig& config) {
  std::vector<std::string> warnings;
  const auto look = [&warnings](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.code() == ExitCode::kConfig) throw;
      warnings.push_back(fmt::format("training would end at its start: {}", error.what()));
    }
  };
  look([&config] {
    const auto dataset = build_dataset(config, config.data.dataset_param);
    const int64_t batch =
        config.training.micro_batch_size * config.parallel.data_parallel_size.value_or(1);
    if (dataset->size() < batch) {
      throw DataError("{}: {} samples, fewer than the {} of one micro batch of all ranks",
                      join(config.data.dataset_param.basic_parameters.dataset, ", "),
                      dataset->size(), batch);
    }
    training_steps(config.training, dataset->size());
  });
  look([&config] {
    const LoadSource source = find_load_source(config);
    if (source.kind == LoadSource::Kind::kHuggingFace) checkpoint::HfFolder::open(source.folder);
  });
  return warnings;
}

void rehearse(const config::TrainConfig& config,
              int64_t world,
              const TrainerParts& parts,
              models::Model& model) {
  const int size = static_cast<int>(world);
  apply_freeze(config.model.freeze, model);
  const auto alone = distributed::World::fake(0, size);
  parts.make_parallel(
      config, model,
      distributed::ParallelMeshes::make(*alone, parallel_dims(config.parallel, size)));
}

void check_whole(config::LoadedConfig& loaded, int64_t world, const TrainerParts& parts) {
  const auto model = check_run(loaded, world, parts);
  rehearse(loaded.config, world, parts, *model);
}

}  // namespace shardloom::trainer
