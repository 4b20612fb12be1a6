#include "shardloom/loss/loss.h"

#include <gtest/gtest.h>

#include "shardloom/ops/cross_entropy.h"
#include "tests/testing/tensors.h"

namespace shardloom::loss {
namespace {

using testing::max_difference;
using testing::tensor_of;

const Json& num01() {
  static const Json json =
      read_json_file(std::string(SHARDLOOM_TEST_DATA) + "/num/NUM-01.json", ExitCode::kInternal);
  return json;
}

struct Result {
  double loss;
  at::Tensor grad_w;
};

// Cuts the four samples into micro batches; each adds its part with the denominators of the whole.
Result run(LossType type, const std::vector<std::vector<int64_t>>& cut, double scale = 1.0) {
  const at::Tensor h = tensor_of(num01()["h"]).to(at::kFloat);
  const at::Tensor w = tensor_of(num01()["W"]).to(at::kFloat).requires_grad_();
  const at::Tensor targets = shift_labels(tensor_of(num01()["labels"]).to(at::kLong));
  TargetCounts counts;
  for (const auto& rows : cut)
    counts += count_targets(targets.index_select(0, at::tensor(rows, at::kLong)));
  double loss = 0;
  for (const auto& rows : cut) {
    const at::Tensor index = at::tensor(rows, at::kLong);
    const at::Tensor t = targets.index_select(0, index);
    const at::Tensor valid = at::nonzero(t.flatten().ge(0)).squeeze(1);
    const at::Tensor logits =
        at::mm(h.index_select(0, index).flatten(0, 1).index_select(0, valid), w.t());
    const at::Tensor part = ops::weighted_cross_entropy(
        logits, t.flatten().index_select(0, valid),
        token_weights(t, type, counts).flatten().index_select(0, valid));
    loss += part.item<double>();
    (part * scale).backward();
  }
  return {loss, w.grad()};
}

const std::vector<std::vector<std::vector<int64_t>>> kCuts = {
    {{0, 1, 2, 3}},   {{0, 1}, {2, 3}},     {{0, 2}, {1, 3}},
    {{2, 0}, {1, 3}}, {{0}, {1}, {2}, {3}}, {{3}, {0, 1, 2}}};

TEST(Loss, LabelsAreShiftedOverTheWholeSequence) {
  EXPECT_TRUE(at::equal(shift_labels(tensor_of(num01()["labels"]).to(at::kLong)),
                        tensor_of(num01()["labels_shifted_globally"]).to(at::kLong)));
}

// 2e-5 is the fp32 tolerance the case states.
TEST(Loss, SampleMeanLeavesOutEmptySamplesWhateverTheCut) {
  const Json& right =
      num01()["right"]["sample_mean_skip_empty (seed rule; empty samples left out)"];
  for (const auto& cut : kCuts) {
    const Result got = run(LossType::kSampleMean, cut);
    EXPECT_NEAR(got.loss, right["loss"].get<double>(), 2e-5);
    EXPECT_LT(max_difference(got.grad_w, tensor_of(right["dW"])), 2e-5);
    EXPECT_NEAR(got.grad_w.norm().item<double>(), right["dW_norm"].get<double>(), 2e-5);
  }
}

TEST(Loss, TokenMeanWhateverTheCut) {
  const Json& right = num01()["right"]["token_mean"];
  for (const auto& cut : kCuts) {
    const Result got = run(LossType::kTokenMean, cut);
    EXPECT_NEAR(got.loss, right["loss"].get<double>(), 2e-5);
    EXPECT_LT(max_difference(got.grad_w, tensor_of(right["dW"])), 2e-5);
  }
}

TEST(Loss, SquareWeightsEachSampleByTheRootOfItsTargets) {
  const at::Tensor per_token = tensor_of(num01()["per_token_loss"]);
  const std::vector<double> n = {5, 1, 0, 7};
  double sum = 0, weights = 0;
  for (int row : {0, 1, 3}) {
    sum += per_token[row].sum().item<double>() / std::sqrt(n[row]);
    weights += std::sqrt(n[row]);
  }
  for (const auto& cut : kCuts) EXPECT_NEAR(run(LossType::kSquare, cut).loss, sum / weights, 2e-5);
}

TEST(Loss, IncomingGradientIsHonoured) {
  const at::Tensor whole = run(LossType::kSampleMean, kCuts[0]).grad_w;
  EXPECT_LT(max_difference(run(LossType::kSampleMean, kCuts[0], 0.5).grad_w, whole * 0.5), 1e-6);
}

TEST(Loss, NoTargetAnywhereGivesZeroAndNoNan) {
  const at::Tensor targets = at::full({2, 4}, kIgnoreIndex, at::kLong);
  const TargetCounts counts = count_targets(targets);
  EXPECT_EQ(counts.samples_without_targets, 2);
  for (const LossType type : {LossType::kTokenMean, LossType::kSampleMean, LossType::kSquare}) {
    EXPECT_EQ(token_weights(targets, type, counts).abs().max().item<float>(), 0.0f);
  }
}

TEST(Loss, UnknownTypeNamesTheNearest) {
  try {
    parse_loss_type("per_sample");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("per_sample"), std::string::npos);
  }
  EXPECT_EQ(parse_loss_type("raw"), LossType::kTokenMean);
}

}  // namespace
}  // namespace shardloom::loss
