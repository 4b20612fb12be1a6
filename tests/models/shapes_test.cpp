// Shapes that no fixture has: the fused model against its own definition is covered by golden
// tests; here every shape must run, give finite defined gradients, and survive a round trip through
// HF files in each layout.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "shardloom/base/json.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"

namespace shardloom::models {
namespace {

struct Shape {
  std::string name;
  int64_t image, vision_layers, layers, heads, kv_heads, head_dim, vocab, experts, top_k;
};

constexpr int64_t kImageToken = 5;

Json config_json(const Shape& s, bool hf) {
  Json language = {{"model_type", s.experts > 0 ? "qwen3_moe" : "qwen3"},
                   {"vocab_size", s.vocab},
                   {"hidden_size", 40},
                   {"num_hidden_layers", s.layers},
                   {"num_attention_heads", s.heads},
                   {"num_key_value_heads", s.kv_heads},
                   {"head_dim", s.head_dim},
                   {"intermediate_size", 56},
                   {"rms_norm_eps", 1e-6},
                   {"rope_theta", 1e6}};
  if (s.experts > 0) {
    language.update({{"num_experts", s.experts},
                     {"num_experts_per_tok", s.top_k},
                     {"moe_intermediate_size", 20},
                     {"norm_topk_prob", true},
                     {"mlp_only_layers", {1}}});
  }
  Json vision = {{"hidden_size", 24},        {"num_hidden_layers", s.vision_layers},
                 {"num_attention_heads", 3}, {"intermediate_size", 48},
                 {"image_size", s.image},    {"patch_size", 14}};
  if (!hf) {
    return {{"model_type", "internvl_chat"},
            {"force_image_size", s.image},
            {"ps_version", "v2"},
            {"vision_config", vision},
            {"llm_config", language}};
  }
  vision["attention_bias"] = true;
  return {{"model_type", "internvl"},
          {"image_token_id", kImageToken},
          {"vision_config", vision},
          {"text_config", language}};
}

class Shapes : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("shardloom_shapes_" + GetParam().name + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Model> build(bool hf, at::ScalarType dtype = at::kFloat) {
    std::ofstream(folder_ / "config.json") << config_json(GetParam(), hf).dump();
    BuildOptions options;
    options.folder = folder_;
    options.keep_router_logits = true;
    options.tensor_options = at::TensorOptions().dtype(dtype);
    options.token_id = [](const std::string&) { return std::optional<int64_t>(kImageToken); };
    auto model = model_registry().get("internvl3_5")(options);
    at::manual_seed(1);
    models::init_random(*model);
    for (const auto& p : model->named_parameters()) p.tensor->requires_grad_();
    return model;
  }

  TensorMap batch() const {
    const Shape& s = GetParam();
    const int64_t tokens = (s.image / 14 / 2) * (s.image / 14 / 2);
    const int64_t length = tokens + 11;
    at::manual_seed(2);
    at::Tensor ids = at::randint(6, s.vocab, {2, length}, at::kLong);
    ids[0].narrow(0, 3, tokens).fill_(kImageToken);
    at::Tensor flags = at::tensor({1, 0}, at::kLong);
    at::Tensor labels = ids.clone();
    labels.narrow(1, 0, tokens + 4).fill_(loss::kIgnoreIndex);
    return {{"input_ids", ids},
            {"labels", labels},
            {"attention_mask", at::ones_like(ids)},
            {"pixel_values", at::randn({2, 3, s.image, s.image})},
            {"image_flags", flags}};
  }

  static ModelOutput loss_of(Model& model, const TensorMap& batch) {
    const at::Tensor targets = loss::shift_labels(batch.at("labels"));
    return model.compute_loss(batch,
                              {targets, loss::token_weights(targets, loss::LossType::kSampleMean,
                                                            loss::count_targets(targets))});
  }

  std::filesystem::path folder_;
};

TEST_P(Shapes, GradientsAreDefinedAndFinite) {
  auto model = build(false);
  const ModelOutput out = loss_of(*model, batch());
  const bool has_router = out.router.probability_E.defined();
  EXPECT_EQ(has_router, GetParam().experts > 0);
  at::Tensor total = out.loss;
  if (has_router) {
    total = total + 0.01 * ops::load_balancing_loss(out.router.probability_E, out.router.assigned_E,
                                                    model->facts()->top_k);
  }
  total.backward();
  for (const auto& p : model->named_parameters()) {
    ASSERT_TRUE(p.tensor->grad().defined()) << p.name;
    EXPECT_TRUE(at::isfinite(p.tensor->grad()).all().item<bool>()) << p.name;
  }
}

// The loss is that of the logits' own cross entropy (one path through the head for all rows, one
// for target rows only).
TEST_P(Shapes, LossEqualsCrossEntropyOfTheLogits) {
  auto model = build(false);
  const at::NoGradGuard no_grad;
  const TensorMap b = batch();
  const at::Tensor targets = loss::shift_labels(b.at("labels"));
  const at::Tensor weights =
      loss::token_weights(targets, loss::LossType::kSampleMean, loss::count_targets(targets));
  const at::Tensor losses =
      at::cross_entropy_loss(model->compute_logits(b).flatten(0, 1), targets.flatten(), {},
                             at::Reduction::None, loss::kIgnoreIndex);
  const double expected = (losses * weights.flatten()).sum().item<double>();
  EXPECT_NEAR(loss_of(*model, b).loss.item<double>(), expected, 1e-5 * expected);
}

TEST_P(Shapes, Bf16FollowsFp32) {
  const at::NoGradGuard no_grad;
  const TensorMap b = batch();
  const double high = loss_of(*build(false), b).loss.item<double>();
  auto low_model = build(false);
  for (const auto& p : low_model->named_parameters()) *p.tensor = p.tensor->to(at::kBFloat16);
  // 2^-9 a rounding through a few layers.
  EXPECT_NEAR(loss_of(*low_model, b).loss.item<double>(), high, 0.02 * high);
}

TEST_P(Shapes, WeightsSurviveExportAndLoadInBothLayouts) {
  for (const bool hf : {false, true}) {
    auto model = build(hf);
    checkpoint::HfExportOptions options;
    options.dtype = checkpoint::DType::kF32;
    options.config_json = model->export_config("float32", model->layout());
    options.replace = true;
    const auto out = folder_ / "export";
    checkpoint::export_hf_weights(out, model->weight_sources(model->layout()),
                                  checkpoint::whole_tensors(model->named_parameters()), options);
    auto again = build(hf);
    const at::NoGradGuard no_grad;
    for (const auto& p : again->named_parameters()) p.tensor->zero_();
    checkpoint::HfLoadOptions load;
    load.verbose = false;
    checkpoint::load_hf_weights(
        checkpoint::HfFolder::open(out), [&](nn::Layout l) { return again->weight_sources(l); },
        checkpoint::whole_tensors(again->named_parameters()), load);
    const auto before = model->named_parameters(), after = again->named_parameters();
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(at::equal(*before[i].tensor, *after[i].tensor)) << before[i].name;
  }
}

// An export in the other layout is the same model: a run that loads it computes the same bits.
TEST_P(Shapes, ExportInTheOtherLayoutGivesTheSameLogits) {
  const at::NoGradGuard no_grad;
  for (const bool hf : {false, true}) {
    const nn::Layout other = hf ? nn::Layout::kRemoteCode : nn::Layout::kHfNative;
    auto model = build(hf);
    checkpoint::HfExportOptions options;
    options.dtype = checkpoint::DType::kF32;
    options.config_json = model->export_config("float32", other);
    options.replace = true;
    const auto out = folder_ / "other";
    checkpoint::export_hf_weights(out, model->weight_sources(other),
                                  checkpoint::whole_tensors(model->named_parameters()), options);
    BuildOptions load_options;
    load_options.folder = out;
    load_options.token_id = [](const std::string&) { return std::optional<int64_t>(kImageToken); };
    auto again = model_registry().get("internvl3_5")(load_options);
    EXPECT_EQ(again->layout(), other);
    checkpoint::HfLoadOptions load;
    load.verbose = false;
    checkpoint::load_hf_weights(
        checkpoint::HfFolder::open(out), [&](nn::Layout l) { return again->weight_sources(l); },
        checkpoint::whole_tensors(again->named_parameters()), load);
    const TensorMap b = batch();
    EXPECT_TRUE(at::equal(model->compute_logits(b), again->compute_logits(b)));
  }
}

INSTANTIATE_TEST_SUITE_P(Odd,
                         Shapes,
                         ::testing::Values(Shape{"moe_one_kv", 84, 1, 3, 4, 1, 24, 253, 6, 3},
                                           Shape{"dense_odd", 56, 3, 5, 3, 3, 10, 131, 0, 0},
                                           Shape{"moe_wide_heads", 112, 2, 2, 6, 2, 16, 200, 1, 1},
                                           Shape{"large_picture", 448, 1, 1, 2, 1, 8, 97, 5, 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shardloom::models
