#include "shardloom/ops/rope.h"

#include <gtest/gtest.h>

#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

at::Tensor rotate_half_formula(const at::Tensor& x, int64_t first, double theta) {
  const int64_t d = x.size(3);
  const at::Tensor inv = at::pow(theta, -at::arange(0, d, 2, at::kDouble) / static_cast<double>(d));
  const at::Tensor angles = at::outer(at::arange(first, first + x.size(1), at::kDouble), inv);
  const at::Tensor emb = at::cat({angles, angles}, -1).unsqueeze(1);
  const auto halves = x.chunk(2, -1);
  return x * emb.cos() + at::cat({-halves[1], halves[0]}, -1) * emb.sin();
}

// Angles are fp32 (as in transformers), so at position 300 they are right to about 300 * 2^-24 =
// 2e-5.
TEST(Rope, ValueAndGradientEqualRotateHalf) {
  at::manual_seed(1);
  for (const int64_t d : {2, 16, 24}) {
    const RopeTable table = make_rope_table(320, d, 1e6);
    const at::Tensor x = at::randn({2, 300, 3, d}), g = at::randn_like(x);
    const at::Tensor x1 = x.clone().requires_grad_();
    const at::Tensor y1 = apply_rope(x1, table, 20);
    y1.backward(g);
    const at::Tensor x2 = x.to(at::kDouble).requires_grad_();
    const at::Tensor y2 = rotate_half_formula(x2, 20, 1e6);
    y2.backward(g.to(at::kDouble));
    EXPECT_LT(max_difference(y1, y2), 1e-4);
    EXPECT_LT(max_difference(x1.grad(), x2.grad()), 1e-4);
  }
}

TEST(Rope, FirstFrequencyIsExactlyOne) {
  const RopeTable table = make_rope_table(2, 16, 1e6);
  EXPECT_FLOAT_EQ(table.cos[1][0].item<float>(), std::cos(1.0f));
  EXPECT_EQ(table.cos.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace shardloom::ops
