#include "shardloom/ops/cross_entropy.h"

#include <gtest/gtest.h>

#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

TEST(WeightedCrossEntropy, ValueAndGradientEqualTheFormulaWithIncomingGradient) {
  at::manual_seed(0);
  const at::Tensor logits = at::randn({9, 31}) * 5, targets = at::randint(31, {9}, at::kLong),
                   weights = at::rand({9});
  const at::Tensor l1 = logits.clone().requires_grad_();
  (weighted_cross_entropy(l1, targets, weights) * 0.5).backward();
  const at::Tensor l2 = logits.to(at::kDouble).requires_grad_();
  const at::Tensor expected =
      (at::cross_entropy_loss(l2, targets, {}, at::Reduction::None) * weights).sum();
  (expected * 0.5).backward();
  EXPECT_NEAR(weighted_cross_entropy(logits, targets, weights).item<double>(),
              expected.item<double>(), 1e-5);
  EXPECT_LT(max_difference(l1.grad(), l2.grad()), 1e-6);
}

TEST(WeightedCrossEntropy, NoRowGivesZeroAndADefinedGradient) {
  const at::Tensor logits = at::zeros({0, 5}).requires_grad_();
  const at::Tensor loss = weighted_cross_entropy(logits, at::zeros({0}, at::kLong), at::zeros({0}));
  loss.backward();
  EXPECT_EQ(loss.item<float>(), 0.0f);
  EXPECT_TRUE(logits.grad().defined());
}

TEST(WeightedCrossEntropy, HugeLogitsStayFinite) {
  const at::Tensor logits = at::tensor({3e4f, -3e4f}).view({1, 2}).requires_grad_();
  const at::Tensor loss = weighted_cross_entropy(logits, at::ones({1}, at::kLong), at::ones({1}));
  loss.backward();
  EXPECT_FLOAT_EQ(loss.item<float>(), 6e4f);
  EXPECT_TRUE(at::isfinite(logits.grad()).all().item<bool>());
}

}  // namespace
}  // namespace shardloom::ops
