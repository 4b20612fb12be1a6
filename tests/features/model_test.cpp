// The features on the tiny mixture-of-experts model, through apply().
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/features/apply.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"
#include "tests/features/nets.h"
#include "tests/testing/tensors.h"

namespace shardloom::features::testing {
namespace {

struct TinyMoe {
  TinyMoe() {
    models::BuildOptions options;
    options.folder = std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model";
    options.keep_router_logits = true;
    options.tensor_options = at::TensorOptions().dtype(at::kFloat);
    options.token_id = [](const std::string&) { return 762; };
    model = models::model_registry().get("internvl3_5")(options);
    at::manual_seed(1);
    models::init_random(*model);
    for (const auto& p : model->named_parameters()) p.tensor->set_requires_grad(true);
    batch = shardloom::testing::load_safetensors(std::string(SHARDLOOM_TEST_DATA) +
                                                 "/golden/moe/forward.safetensors");
    batch["image_flags"] = at::ones({batch["pixel_values"].size(0)}, at::kLong);
  }

  StepResult step() {
    return run_step(*model, [this] {
      const at::Tensor targets = loss::shift_labels(batch["labels"]);
      const auto out = model->compute_loss(
          batch, {targets, loss::token_weights(targets, loss::LossType::kSampleMean,
                                               loss::count_targets(targets))});
      return out.loss +
             0.01 * ops::load_balancing_loss(out.router.probability_E, out.router.assigned_E, 2);
    });
  }

  std::unique_ptr<models::Model> model;
  models::TensorMap batch;
};

std::vector<std::string> layers() {
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) names.push_back("vision_model.encoder.layers." + std::to_string(i));
  for (int i = 0; i < 4; ++i) names.push_back("language_model.model.layers." + std::to_string(i));
  return names;
}

struct Case {
  std::string name;
  FeaturePlan plan;
};

class TinyMoeFeatures : public ::testing::TestWithParam<Case> {};

TEST_P(TinyMoeFeatures, LossAndGradientsAreThoseWithout) {
  TinyMoe off, on;
  const auto offload = apply(*on.model, GetParam().plan);
  for (int step = 0; step < 2; ++step) expect_same_bits(on.step(), off.step());
  EXPECT_EQ(offload != nullptr, !GetParam().plan.offload.empty());
  EXPECT_TRUE(offload == nullptr || offload->counters().bytes_to_device > 0);
}

// A router of zeros gives every token eight equal experts.
TEST_P(TinyMoeFeatures, TiesOfTheRouterFallTheSameWayInBothRuns) {
  TinyMoe off, on;
  for (const TinyMoe* tiny : {&off, &on}) {
    const at::NoGradGuard no_grad;
    for (const auto& p : tiny->model->named_parameters()) {
      if (p.name.ends_with("mlp.gate.weight")) p.tensor->zero_();
    }
  }
  apply(*on.model, GetParam().plan);
  expect_same_bits(on.step(), off.step());
}

INSTANTIATE_TEST_SUITE_P(
    Plans,
    TinyMoeFeatures,
    ::testing::Values(
        Case{"Recompute", {.recompute = layers()}},
        Case{"Reentrant", {.recompute = layers(), .recompute_mode = RecomputeMode::kReentrant}},
        Case{"Offload", {.offload = layers()}},
        Case{"Both", {.recompute = layers(), .offload = layers()}},
        Case{"Nested",
             {.recompute = {"language_model.model", "language_model.model.layers.1",
                            "language_model.model.layers.1.mlp", "vision_model.encoder"},
              .offload = layers()}}),
    [](const auto& info) { return info.param.name; });

TEST(TinyMoeChunkLoss, WithAllFeatures) {
  TinyMoe off, on;
  apply(*on.model, {.recompute = layers(),
                    .offload = layers(),
                    .chunk_loss = "language_model.lm_head",
                    .chunk_rows = 5});
  const StepResult expected = off.step(), actual = on.step();
  EXPECT_NEAR(actual.loss, expected.loss, 1e-6 * expected.loss);
  for (const auto& [name, grad] : expected.grads) {
    // fp32 sums of the output layer in another order.
    const double largest = grad.abs().max().item<double>();
    EXPECT_LE(shardloom::testing::max_difference(actual.grads.at(name), grad), 1e-5 * largest)
        << name;
  }
}

TEST(FeaturePlan, UnknownNamesAreRefusedWithTheFeature) {
  Net net;
  for (const FeaturePlan& plan :
       {FeaturePlan{.recompute = {"blocks.9"}}, FeaturePlan{.offload = {"blocks.9"}},
        FeaturePlan{.chunk_loss = "blocks.9", .chunk_rows = 1}}) {
    EXPECT_NE(error_of<ConfigError>([&] { apply(net, plan); }).find("\"blocks.9\""),
              std::string::npos);
  }
}

}  // namespace
}  // namespace shardloom::features::testing
