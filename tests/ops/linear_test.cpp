#include "shardloom/ops/linear.h"

#include <gtest/gtest.h>

#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

// Low precision on CPU: fp32 product of the stored values, rounded once: exactly that, value and
// gradients.
TEST(Linear, Bf16IsTheFp32ProductRoundedOnce) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({2, 5, 33}).to(at::kBFloat16),
                   w = at::randn({17, 33}).to(at::kBFloat16), b = at::randn({17}).to(at::kBFloat16);
  const at::Tensor g = at::randn({2, 5, 17}).to(at::kBFloat16);
  const at::Tensor x1 = x.clone().requires_grad_(), w1 = w.clone().requires_grad_(),
                   b1 = b.clone().requires_grad_();
  const at::Tensor y = linear(x1, w1, b1);
  y.backward(g);
  EXPECT_TRUE(at::equal(
      y, at::linear(x.to(at::kFloat), w.to(at::kFloat), b.to(at::kFloat)).to(at::kBFloat16)));
  const at::Tensor g2 = g.view({10, 17}).to(at::kFloat), x2 = x.view({10, 33}).to(at::kFloat);
  EXPECT_TRUE(at::equal(x1.grad().view({10, 33}), at::mm(g2, w.to(at::kFloat)).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(w1.grad(), at::mm(g2.t(), x2).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(b1.grad(), g2.sum(0).to(at::kBFloat16)));
}

TEST(Linear, WithoutBiasAndWithFrozenWeight) {
  const at::Tensor x = at::randn({3, 4}).to(at::kBFloat16).requires_grad_(),
                   w = at::randn({2, 4}).to(at::kBFloat16);
  linear(x, w, at::Tensor()).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST(Linear, Fp32IsAtens) {
  const at::Tensor x = at::randn({3, 4}), w = at::randn({2, 4});
  EXPECT_TRUE(at::equal(linear(x, w, at::Tensor()), at::linear(x, w)));
  EXPECT_FALSE(computes_in_fp32(x));
}

}  // namespace
}  // namespace shardloom::ops
