#include "shardloom/trainer/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/trainer/assembly.h"

namespace shardloom::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Plans : public ::testing::Test {
 protected:
  Plans() {
    loaded_.config.model.model_id = "internvl3_5";
    loaded_.config.model.model_name_or_path =
        std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model";
    model_ = build_model(loaded_.config, TokenIds::kNone);
  }
  config::LoadedConfig loaded_;
  std::unique_ptr<models::Model> model_;
};

TEST_F(Plans, DefaultsFitAndAreSilent) {
  const PlanReport report = check_plans(loaded_, *model_);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST_F(Plans, ActivePatternWithoutAModuleIsAProblemAndAnInertOneAWarning) {
  loaded_.config.parallel.fsdp_plan.apply_modules = {"mlp1", "language_model.model.layer.{*}"};
  loaded_.config.features.recompute_plan.apply_modules = {"vision_model.encoder.layers.{7}"};
  const auto file = std::make_shared<const std::string>("run.yaml");
  loaded_.sources["features.recompute_plan.apply_modules"] = {file, 20, 5};
  loaded_.sources["parallel.fsdp_plan.apply_modules"] = {file, 7, 5};
  const PlanReport report = check_plans(loaded_, *model_);
  EXPECT_THAT(report.problems,
              ElementsAre(AllOf(StartsWith("run.yaml:7:5: parallel.fsdp_plan.apply_modules: "),
                                HasSubstr("language_model.model.layer.{*}"))));
  EXPECT_THAT(report.warnings, ElementsAre(AllOf(StartsWith("run.yaml:20:5: "), HasSubstr("{7}"))));
}

TEST_F(Plans, FreezeTakesEverythingBelowAModule) {
  loaded_.config.model.freeze = {"vision_model"};
  const int64_t frozen = apply_freeze({"vision_model", "mlp1"}, *model_);
  int64_t expected = 0;
  for (const auto& p : model_->named_parameters()) {
    const bool below = p.name.rfind("vision_model.", 0) == 0 || p.name.rfind("mlp1.", 0) == 0;
    EXPECT_EQ(p.tensor->requires_grad(), !below) << p.name;
    expected += below ? p.tensor->numel() : 0;
  }
  EXPECT_EQ(frozen, expected);
  EXPECT_THROW(apply_freeze({"vision_tower"}, *model_), ConfigError);
}

}  // namespace
}  // namespace shardloom::trainer
