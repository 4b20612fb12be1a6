// Logits, losses and gradients against transformers (tests/data/golden).
#include <gtest/gtest.h>

#include "shardloom/base/json.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"
#include "tests/testing/tensors.h"

namespace shardloom::models {
namespace {

using testing::load_safetensors;
using testing::max_difference;

constexpr int64_t kImageContextId = 762;

struct Case {
  std::string name;
  std::string folder;
};

std::unique_ptr<Model> load_model(const std::string& folder) {
  BuildOptions options;
  options.folder = folder;
  options.tensor_options = at::TensorOptions().dtype(at::kFloat);
  const Json added = read_json_file(folder + "/added_tokens.json", ExitCode::kInternal);
  options.token_id = [added](const std::string& token) -> std::optional<int64_t> {
    return added.contains(token) ? std::optional<int64_t>(added[token].get<int64_t>())
                                 : std::nullopt;
  };
  auto model = model_registry().get("internvl3_5")(options);
  checkpoint::HfLoadOptions load;
  load.verbose = false;
  checkpoint::load_hf_weights(
      checkpoint::HfFolder::open(folder), [&](nn::Layout l) { return model->weight_sources(l); },
      checkpoint::whole_tensors(model->named_parameters()), load);
  for (const auto& p : model->named_parameters()) p.tensor->requires_grad_();
  return model;
}

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    data_ = std::string(SHARDLOOM_TEST_DATA) + "/golden/" + GetParam().name;
    model_ = load_model(std::string(SHARDLOOM_SOURCE_DIR) + "/" + GetParam().folder);
    batch_ = load_safetensors(data_ + "/forward.safetensors");
    batch_["image_flags"] = at::ones({batch_["pixel_values"].size(0)}, at::kLong);
    golden_ = read_json_file(data_ + "/golden.json", ExitCode::kInternal);
  }

  ModelOutput loss(loss::LossType type) {
    const at::Tensor targets = loss::shift_labels(batch_["labels"]);
    return model_->compute_loss(
        batch_, {targets, loss::token_weights(targets, type, loss::count_targets(targets))});
  }

  std::string data_;
  std::unique_ptr<Model> model_;
  TensorMap batch_;
  Json golden_;
};

TEST_P(Golden, LogitsWithin1e4WhereThereIsText) {
  const at::NoGradGuard no_grad;
  const at::Tensor real = batch_["attention_mask"].to(at::kBool).unsqueeze(2);
  EXPECT_LT(max_difference(model_->compute_logits(batch_) * real, batch_["logits"] * real), 1e-4);
}

TEST_P(Golden, ThreeLossesWithin1e5Relative) {
  const at::NoGradGuard no_grad;
  const std::pair<const char*, loss::LossType> types[] = {
      {"default", loss::LossType::kTokenMean},
      {"per_sample_loss", loss::LossType::kSampleMean},
      {"square_loss", loss::LossType::kSquare}};
  for (const auto& [name, type] : types) {
    const double expected = golden_["losses"][name].get<double>();
    EXPECT_NEAR(loss(type).loss.item<double>(), expected, 1e-5 * expected) << name;
  }
}

TEST_P(Golden, EveryGradientWithin1e4OfItsLargestElement) {
  loss(loss::LossType::kSampleMean).loss.backward();
  const auto expected = load_safetensors(data_ + "/grads_per_sample_loss.safetensors");
  const auto parameters = model_->named_parameters();
  EXPECT_EQ(parameters.size(), expected.size());
  double squares = 0;
  for (const auto& p : parameters) {
    const at::Tensor& right = expected.at(p.name);
    const double largest = right.abs().max().item<double>();
    EXPECT_LE(max_difference(p.tensor->grad(), right), 1e-4 * largest) << p.name;
    squares += p.tensor->grad().to(at::kDouble).pow(2).sum().item<double>();
  }
  const double norm = golden_["grad_norm"].get<double>();
  EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm);
}

TEST_P(Golden, TextOnlyBatchGivesVisionExactlyZeroGradients) {
  batch_["input_ids"] = at::where(batch_["input_ids"] == kImageContextId, at::zeros({}, at::kLong),
                                  batch_["input_ids"]);
  batch_["image_flags"] = at::zeros_like(batch_["image_flags"]);
  loss(loss::LossType::kSampleMean).loss.backward();
  for (const auto& p : model_->named_parameters()) {
    ASSERT_TRUE(p.tensor->grad().defined()) << p.name;
    const double largest = p.tensor->grad().abs().max().item<double>();
    const bool vision = p.name.rfind("vision_model", 0) == 0 || p.name.rfind("mlp1", 0) == 0;
    EXPECT_EQ(largest == 0.0, vision) << p.name;
  }
}

TEST_P(Golden, OneFeatureTooFewIsAnErrorWithBothCounts) {
  batch_["image_flags"][0] = 0;
  const at::NoGradGuard no_grad;
  EXPECT_THROW(model_->compute_logits(batch_), DataError);
}

INSTANTIATE_TEST_SUITE_P(Tiny,
                         Golden,
                         ::testing::Values(Case{"moe", "examples/tiny/model"},
                                           Case{"dense", "tests/data/tiny_dense"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shardloom::models
