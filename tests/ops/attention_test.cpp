#include "shardloom/ops/attention.h"

#include <gtest/gtest.h>

#include "tests/testing/tensors.h"

namespace shardloom::ops {
namespace {

using testing::max_difference;

at::Tensor formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  const int64_t groups = q.size(2) / k.size(2), S = q.size(1);
  const at::Tensor qh = q.transpose(1, 2), kh = k.transpose(1, 2).repeat_interleave(groups, 1),
                   vh = v.transpose(1, 2).repeat_interleave(groups, 1);
  at::Tensor scores =
      at::matmul(qh, kh.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) scores = scores.masked_fill(at::ones({S, S}, at::kBool).triu(1), -INFINITY);
  return at::matmul(at::softmax(scores, -1), vh).transpose(1, 2);
}

class AttentionShapes
    : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t, int64_t, bool>> {};

// Sums of up to 130 products of order 1 in fp32.
TEST_P(AttentionShapes, ValueAndGradientsEqualTheFormula) {
  const auto [S, heads, kv_heads, d, causal] = GetParam();
  at::manual_seed(S);
  const at::Tensor q = at::randn({2, S, heads, d}), k = at::randn({2, S, kv_heads, d}),
                   v = at::randn({2, S, kv_heads, d});
  const at::Tensor g = at::randn({2, S, heads, d});
  std::vector<at::Tensor> a, b;
  for (const at::Tensor& t : {q, k, v}) {
    a.push_back(t.clone().requires_grad_());
    b.push_back(t.to(at::kDouble).requires_grad_());
  }
  const at::Tensor y = attention(a[0], a[1], a[2], causal),
                   expected = formula(b[0], b[1], b[2], causal);
  y.backward(g);
  expected.backward(g.to(at::kDouble));
  EXPECT_LT(max_difference(y, expected), 1e-5);
  for (int i = 0; i < 3; ++i) EXPECT_LT(max_difference(a[i].grad(), b[i].grad()), 5e-5);
}

INSTANTIATE_TEST_SUITE_P(Odd,
                         AttentionShapes,
                         ::testing::Values(std::tuple{1, 2, 1, 8, true},
                                           std::tuple{37, 4, 1, 24, true},
                                           std::tuple{130, 4, 2, 16, true},
                                           std::tuple{65, 3, 3, 16, false}));

}  // namespace
}  // namespace shardloom::ops
