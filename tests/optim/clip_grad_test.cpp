#include "shardloom/optim/clip_grad.h"

#include <gtest/gtest.h>

namespace shardloom::optim {
namespace {

TEST(ClipGrad, NormIsThatOfAllGradientsTogether) {
  at::manual_seed(0);
  const at::Tensor a = at::randn({5000}), b = at::randn({3, 7});
  const double expected =
      a.to(at::kDouble).pow(2).sum().item<double>() + b.to(at::kDouble).pow(2).sum().item<double>();
  EXPECT_NEAR(squared_norm({{"a", a, a}, {"b", b, b}, {"c", b, {}}}), expected, 1e-6 * expected);
}

TEST(ClipGrad, FactorScalesDownOnly) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
}

TEST(ClipGrad, FirstNonFiniteIsNamed) {
  const at::Tensor good = at::ones({2});
  EXPECT_EQ(first_non_finite({{"a", good, good}}), "");
  for (const double bad : {NAN, INFINITY}) {
    EXPECT_EQ(
        first_non_finite(
            {{"a", good, good}, {"b", good, at::full({2}, bad)}, {"c", good, at::full({2}, bad)}}),
        "b");
  }
}

}  // namespace
}  // namespace shardloom::optim
