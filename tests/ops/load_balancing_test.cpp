#include "shardloom/ops/load_balancing.h"

#include <gtest/gtest.h>

#include "tests/testing/experts_case.h"

namespace shardloom::ops {
namespace {

using testing::experts_case;
using testing::ExpertsCase;

// fp32 rounding of sums of 56 probabilities.
constexpr double kTolerance = 1e-5;

double whole_loss(const RouterSums& sums) {
  return load_balancing_loss(sums.probability_E, sums.assigned_E, 2).item<double>();
}

TEST(LoadBalancingLoss, EqualsGivenValuesWithAndWithoutPadding) {
  const ExpertsCase c = experts_case();
  EXPECT_NEAR(whole_loss(router_sums({c.logits}, 2, {})), c.aux_loss, kTolerance);
  const at::Tensor mask = at::tensor({1, 1, 1, 1, 1, 0, 0}, at::kLong);
  EXPECT_NEAR(whole_loss(router_sums({c.logits}, 2, mask)), c.aux_loss_first_five, kTolerance);
}

TEST(LoadBalancingLoss, LayersAreOneSetOfTokens) {
  const ExpertsCase c = experts_case();
  const RouterSums twice = router_sums({c.logits, c.logits}, 2, {});
  EXPECT_EQ(twice.assigned_E.sum().item<int64_t>(), 2 * 7 * 2);
  EXPECT_NEAR(whole_loss(twice), c.aux_loss, kTolerance);
}

// The mean of the parts' own losses is 5.159, not 4.984.
TEST(LoadBalancingLoss, SharesOfPartsAddUpAndSoDoTheirGradients) {
  const ExpertsCase c = experts_case();
  const at::Tensor logits = c.logits.clone().requires_grad_();
  const RouterSums whole = router_sums({logits}, 2, {});
  load_balancing_loss(whole.probability_E, whole.assigned_E, 2).backward();
  const at::Tensor cut = c.logits.clone().requires_grad_();
  const RouterSums first = router_sums({cut.narrow(0, 0, 4)}, 2, {}),
                   second = router_sums({cut.narrow(0, 4, 3)}, 2, {});
  const at::Tensor assigned = first.assigned_E + second.assigned_E;
  const at::Tensor sum = load_balancing_loss(first.probability_E, assigned, 2) +
                         load_balancing_loss(second.probability_E, assigned, 2);
  EXPECT_NEAR(sum.item<double>(), c.aux_loss, kTolerance);
  EXPECT_GT(std::abs((whole_loss(first) + whole_loss(second)) / 2 - c.aux_loss), 0.1);
  sum.backward();
  EXPECT_GT(logits.grad().abs().max().item<double>(), 0);
  EXPECT_LT(testing::max_difference(cut.grad(), logits.grad()), kTolerance);
}

TEST(LoadBalancingLoss, NoTokenIsZero) {
  const at::Tensor logits = at::randn({3, 4}).requires_grad_();
  const RouterSums sums = router_sums({logits}, 2, at::zeros({3}, at::kLong));
  const at::Tensor loss = load_balancing_loss(sums.probability_E, sums.assigned_E, 2);
  EXPECT_EQ(loss.item<float>(), 0.0f);
  loss.backward();
  EXPECT_EQ(logits.grad().abs().max().item<float>(), 0.0f);
}

}  // namespace
}  // namespace shardloom::ops
