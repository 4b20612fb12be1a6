#include <gtest/gtest.h>

#include "shardloom/ops/cpu/exp.h"
#include "shardloom/ops/cpu/gemm.h"
#include "shardloom/ops/cpu/swiglu.h"
#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

TEST(FastExp, IsExactToTwoUnitsInTheLastPlace) {
  for (double x = -87.0; x <= 88.0; x += 0.0137) {
    const auto rounded = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(rounded));
    EXPECT_NEAR(fast_exp(rounded) / expected, 1.0, 2.4e-7) << x;
  }
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
}

TEST(FastExp, ClampsAndKeepsNan) {
  EXPECT_EQ(fast_exp(-INFINITY), fast_exp(-87.0f));
  EXPECT_EQ(fast_exp(INFINITY), fast_exp(88.0f));
  EXPECT_TRUE(std::isnan(fast_exp(NAN)));
}

// Each value is a few roundings (2^-24 relative each) from the one in double. 37: a tail after the
// lanes.
TEST(SwigluRow, ValueAndGradientsEqualTheFormula) {
  at::manual_seed(0);
  const int64_t n = 37;
  const at::Tensor gate = at::randn({n}) * 20, up = at::randn({n}), grad = at::randn({n});
  const float scale = 0.37f;
  at::Tensor act = at::empty({n}), scaled = at::empty({n}), grad_gate = at::empty({n}),
             grad_up = at::empty({n});
  const auto data = [](const at::Tensor& x) { return x.mutable_data_ptr<float>(); };
  swiglu_row(data(gate), data(up), data(act), n);
  const float dot = swiglu_backward_row(data(gate), data(up), data(grad), scale, n, data(grad_gate),
                                        data(grad_up), data(scaled));

  const at::Tensor g = gate.to(at::kDouble).requires_grad_(),
                   u = up.to(at::kDouble).requires_grad_();
  const at::Tensor w = at::scalar_tensor(scale, at::kFloat).to(at::kDouble).requires_grad_();
  const at::Tensor expected = at::silu(g) * u;
  (w * expected).backward(grad.to(at::kDouble));
  const auto expect_close = [](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_LT(max_difference(a / b, at::ones_like(b)), 3e-6);
  };
  expect_close(act, expected.detach());
  expect_close(scaled, (w * expected).detach());
  expect_close(grad_gate, g.grad());
  expect_close(grad_up, u.grad());
  EXPECT_NEAR(dot / w.grad().item<double>(), 1.0, 1e-6);
}

// Products of 9 terms of order 1; the rows of a, b and c lie further apart than they are long.
TEST(Gemm, EqualsMatmulInAllLayouts) {
  at::manual_seed(0);
  const int64_t m = 5, n = 17, k = 9;
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      const at::Tensor a = a_transposed ? at::randn({k, m + 3}) : at::randn({m, k + 3});
      const at::Tensor b = b_transposed ? at::randn({n, k + 2}) : at::randn({k, n + 2});
      at::Tensor c = at::randn({m, n + 4});
      const at::Tensor before = c.clone();
      gemm(m, n, k, 0.5f, {a.const_data_ptr<float>(), a.stride(0), a_transposed},
           {b.const_data_ptr<float>(), b.stride(0), b_transposed}, 2.0f,
           c.mutable_data_ptr<float>(), c.stride(0));
      const at::Tensor a_mk = a_transposed ? a.narrow(1, 0, m).t() : a.narrow(1, 0, k);
      const at::Tensor b_kn = b_transposed ? b.narrow(1, 0, k).t() : b.narrow(1, 0, n);
      EXPECT_LT(max_difference(c.narrow(1, 0, n),
                               0.5 * at::matmul(a_mk, b_kn) + 2.0 * before.narrow(1, 0, n)),
                1e-5);
      EXPECT_TRUE(at::equal(c.narrow(1, n, 4), before.narrow(1, n, 4)));
    }
  }
}

TEST(Gemm, WithoutBetaItDoesNotReadTheResult) {
  const at::Tensor a = at::ones({2, 3}), b = at::ones({3, 4});
  at::Tensor c = at::full({2, 4}, NAN);
  gemm(2, 4, 3, 1.0f, {a.const_data_ptr<float>(), 3}, {b.const_data_ptr<float>(), 4}, 0.0f,
       c.mutable_data_ptr<float>(), 4);
  EXPECT_TRUE(at::equal(c, at::full({2, 4}, 3.0)));
}

}  // namespace
}  // namespace shardloom::ops
