#include "shardloom/ops/norm.h"

#include <gtest/gtest.h>

#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

at::Tensor reference(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

// Fused and composed in double agree to fp32 rounding (2^-24 relative per operation, a few
// operations).
TEST(RmsNorm, ValueAndGradientsEqualTheFormula) {
  at::manual_seed(0);
  for (const int64_t dim : {1, 7, 16, 24, 130}) {
    const at::Tensor x = at::randn({3, 67, dim}), w = at::randn({dim}), g = at::randn({3, 67, dim});
    const at::Tensor x1 = x.clone().requires_grad_(), w1 = w.clone().requires_grad_();
    const at::Tensor y1 = rms_norm(x1, w1, 1e-6);
    y1.backward(g);
    const at::Tensor x2 = x.to(at::kDouble).requires_grad_(),
                     w2 = w.to(at::kDouble).requires_grad_();
    const at::Tensor y2 = reference(x2, w2, 1e-6);
    y2.backward(g.to(at::kDouble));
    EXPECT_LT(max_difference(y1, y2), 2e-6);
    EXPECT_LT(max_difference(x1.grad(), x2.grad()), dim == 1 ? 1e-3 : 2e-5) << dim;
    EXPECT_LT(max_difference(w1.grad(), w2.grad()), 1e-4);
  }
}

TEST(RmsNorm, Bf16RoundsTheNormalisedValueAndTheResult) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({5, 32}).to(at::kBFloat16), w = at::randn({32}).to(at::kBFloat16);
  const at::Tensor x32 = x.to(at::kFloat);
  const at::Tensor expected =
      (x32 * at::rsqrt(x32.pow(2).mean(-1, true) + 1e-6)).to(at::kBFloat16) * w;
  // The factor may differ in its last fp32 bit, which moves a bf16 value by at most one step (2^-8
  // relative).
  EXPECT_LT(max_difference(rms_norm(x, w, 1e-6), expected), 0.04);
}

// A weight in no unit of a model that computes in bf16.
TEST(RmsNorm, WeightOfAnotherTypeIsCast) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({5, 32}).to(at::kBFloat16), w = at::randn({32});
  const at::Tensor mixed = w.clone().requires_grad_(), cast = w.to(at::kBFloat16).requires_grad_();
  const at::Tensor y = rms_norm(x, mixed, 1e-6), expected = rms_norm(x, cast, 1e-6);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(y, expected));
  y.sum().backward();
  expected.sum().backward();
  EXPECT_EQ(mixed.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(mixed.grad().to(at::kBFloat16), cast.grad()));
}

TEST(RmsNorm, NumberOfThreadsDoesNotChangeTheBits) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({300, 40}), w = at::randn({40}), g = at::randn({300, 40});
  auto gradients = [&](int threads) {
    at::set_num_threads(threads);
    const at::Tensor x1 = x.clone().requires_grad_(), w1 = w.clone().requires_grad_();
    rms_norm(x1, w1, 1e-6).backward(g);
    return at::cat({x1.grad().flatten(), w1.grad()});
  };
  const int before = at::get_num_threads();
  EXPECT_TRUE(at::equal(gradients(1), gradients(2)));
  at::set_num_threads(before);
}

}  // namespace
}  // namespace shardloom::ops
