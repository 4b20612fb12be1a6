// All faults of a run in one error, before process groups are made.
#include "shardloom/trainer/run_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "shardloom/base/error.h"

namespace shardloom::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kSource = SHARDLOOM_SOURCE_DIR;

// The tiny model (4 heads, 2 key/value heads, 8 experts, 4 vision heads), features as if all built.
config::LoadedConfig load(std::vector<std::string> overrides) {
  for (const char* path :
       {"model.model_name_or_path=/examples/tiny/model", "training.load=/examples/tiny/model",
        "data.dataset_param.basic_parameters.dataset_dir=/examples/tiny/data",
        "data.dataset_param.basic_parameters.dataset=/examples/tiny/data/"
        "train.jsonl"}) {
    std::string text = path;
    overrides.insert(overrides.begin(), text.insert(text.find('=') + 1, kSource));
  }
  return config::load_train_config(kSource + "/tests/data/trajectory.yaml", overrides,
                                   config::FeatureCheck::kAll);
}

std::string error_of(const std::vector<std::string>& overrides, int64_t world) {
  config::LoadedConfig loaded = load(overrides);
  try {
    check_whole(loaded, world, parts_of_config());
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(RunCheck, GoodSizesAreFilledAndTheModelIsBuiltWithoutData) {
  config::LoadedConfig loaded =
      load({"parallel.ulysses_parallel_size=2", "parallel.expert_parallel_size=2"});
  const auto model = check_run(loaded, 4);
  EXPECT_EQ(loaded.config.parallel.data_parallel_size, 2);
  EXPECT_EQ(loaded.config.training.global_batch_size, 4);
  EXPECT_TRUE(model->named_parameters().at(0).tensor->is_meta());
}

TEST(RunCheck, FactsOfTheModelAreThoseOfItsConfig) {
  config::LoadedConfig loaded = load({});
  const auto facts = check_run(loaded, 1)->facts();
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->heads, 4);
  EXPECT_EQ(facts->kv_heads, 2);
  EXPECT_EQ(facts->vision_heads, 4);
  EXPECT_EQ(facts->vision_tokens, 8 * 8 + 1);
  EXPECT_EQ(facts->experts, 8);
  EXPECT_EQ(facts->top_k, 2);
}

TEST(RunCheck, EveryBrokenRuleAndPatternInOneError) {
  const std::string error =
      error_of({"parallel.ulysses_parallel_size=3", "parallel.expert_parallel_size=3",
                "training.global_batch_size=6", "model.freeze=[language_model.layers.{*}]"},
               6);
  EXPECT_THAT(
      error,
      AllOf(HasSubstr("override parallel.ulysses_parallel_size=3: the 4 attention heads"),
            HasSubstr("neither of 2 key/value heads"), HasSubstr("of the vision model"),
            HasSubstr("override parallel.expert_parallel_size=3: the 8 experts"),
            HasSubstr("training.global_batch_size is 6"), HasSubstr("language_model.layers.{*}")));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 5) << error;
}

TEST(RunCheck, RulesOfTheWorldAreNamedOnce) {
  const std::string error =
      error_of({"parallel.ulysses_parallel_size=2", "parallel.expert_parallel_size=2"}, 3);
  EXPECT_THAT(error, AllOf(HasSubstr("the world size 3 is not a multiple of tensor 1 x ring 1 x "
                                     "ulysses 2"),
                           HasSubstr("expert_parallel 2")));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
}

TEST(RunCheck, BrokenSizesAreToldWithMissingPaths) {
  EXPECT_THAT(error_of({"training.global_batch_size=6", "model.model_name_or_path=no/such",
                        "training.load=null"},
                       2),
              AllOf(HasSubstr("training.global_batch_size is 6"), HasSubstr("no/such")));
}

// Modules that exist, but cannot play the part that a plan gives them.
TEST(RunCheck, AModuleMustBeOfTheRightKind) {
  const auto error = [](const std::vector<std::string>& overrides) {
    return error_of(overrides, 2);
  };
  EXPECT_THAT(
      error({"features.enable_chunk_loss=true", "features.chunkloss_plan.apply_module=mlp1"}),
      HasSubstr("mlp1"));
  EXPECT_THAT(
      error({"features.enable_chunk_loss=true", "features.chunkloss_plan.apply_module=lm_head"}),
      HasSubstr("did you mean language_model.lm_head?"));
  EXPECT_THAT(
      error({"parallel.expert_parallel_size=2", "parallel.ep_plan.apply_modules=[mlp1]"}),
      HasSubstr("mlp1 does not hold experts; language_model.model.layers.0.mlp.experts does"));
  EXPECT_THAT(
      error({"features.enable_activation_offload=true",
             "features.activation_offload_plan.apply_modules=[language_model.model.layers]"}),
      HasSubstr("language_model.model.layers"));
  EXPECT_THAT(error({"features.recompute=true",
                     "features.recompute_plan.apply_modules=[language_model.model.layers]"}),
              HasSubstr("language_model.model.layers"));
  EXPECT_THAT(error({"parallel.fsdp_plan.apply_modules=[language_model.model.layers]"}),
              AllOf(StartsWith("override parallel.fsdp_plan.apply_modules="),
                    HasSubstr("is a list of modules"),
                    HasSubstr("write \"language_model.model.layers.{*}\"")));
}

}  // namespace
}  // namespace shardloom::trainer
