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

// fp32 against the formula in double: sums of a few hundred products of order 1, off by some 2^-24
// each; gradients by k and v add up the rows of all later positions.
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

// Around the edges of blocks (32 or 64 positions) and of tiles of keys (512).
INSTANTIATE_TEST_SUITE_P(Blocks,
                         AttentionShapes,
                         ::testing::Values(std::tuple{63, 2, 2, 24, true},
                                           std::tuple{64, 4, 1, 8, true},
                                           std::tuple{65, 2, 1, 24, true},
                                           std::tuple{253, 8, 2, 24, true},
                                           std::tuple{1, 1, 1, 5, true},
                                           std::tuple{512, 1, 1, 8, true},
                                           std::tuple{1100, 4, 2, 8, true}));

struct Result {
  at::Tensor y, q, k, v;
};

Result run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& grad) {
  const at::Tensor q1 = q.clone().requires_grad_(), k1 = k.clone().requires_grad_(),
                   v1 = v.clone().requires_grad_();
  const at::Tensor y = attention(q1, k1, v1, /*causal=*/true);
  y.backward(grad);
  return {y.detach(), q1.grad(), k1.grad(), v1.grad()};
}

void expect_equal(const Result& a, const Result& b) {
  EXPECT_TRUE(at::equal(a.y, b.y));
  EXPECT_TRUE(at::equal(a.q, b.q));
  EXPECT_TRUE(at::equal(a.k, b.k));
  EXPECT_TRUE(at::equal(a.v, b.v));
}

TEST(CausalAttention, RepetitionAndNumberOfThreadsDoNotChangeTheBits) {
  at::manual_seed(1);
  const int before = at::get_num_threads();
  for (const int64_t kv_heads : {1, 2}) {
    const at::Tensor q = at::randn({1, 253, 4, 24}), k = at::randn({1, 253, kv_heads, 24}),
                     v = at::randn({1, 253, kv_heads, 24}), grad = at::randn({1, 253, 4, 24});
    at::set_num_threads(1);
    const Result one = run(q, k, v, grad);
    expect_equal(run(q, k, v, grad), one);
    at::set_num_threads(2);
    expect_equal(run(q, k, v, grad), one);
  }
  at::set_num_threads(before);
}

// A sample's result does not depend on the others of its batch, so that micro batches may be cut
// anywhere.
TEST(CausalAttention, SamplesAreComputedApart) {
  at::manual_seed(2);
  const at::Tensor q = at::randn({3, 70, 4, 16}), k = at::randn({3, 70, 2, 16}),
                   v = at::randn({3, 70, 2, 16}), grad = at::randn({3, 70, 4, 16});
  const Result all = run(q, k, v, grad);
  const auto part = [](const at::Tensor& x) { return x.narrow(0, 1, 1); };
  expect_equal(run(part(q), part(k), part(v), part(grad)),
               {part(all.y), part(all.q), part(all.k), part(all.v)});
}

// Heads cut out of one product, as models lay them out, and heads before positions.
TEST(CausalAttention, ReadsStridedHeads) {
  at::manual_seed(3);
  const at::Tensor qkv = at::randn({2, 40, 3, 4, 8}), grad = at::randn({2, 40, 4, 8});
  const auto parts = qkv.unbind(2);
  const Result dense =
      run(parts[0].contiguous(), parts[1].contiguous(), parts[2].contiguous(), grad);
  const auto strided = [&](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : inputs) leaves.push_back(x.detach().requires_grad_());
    const at::Tensor y = attention(leaves[0], leaves[1], leaves[2], /*causal=*/true);
    y.backward(grad);
    return Result{y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  expect_equal(strided(parts), dense);
  std::vector<at::Tensor> heads_first;
  for (const at::Tensor& x : parts)
    heads_first.push_back(x.transpose(1, 2).contiguous().transpose(1, 2));
  expect_equal(strided(heads_first), dense);
}

// One NaN in a key spoils the rows that see it, and no other.
TEST(CausalAttention, NansAreNotHidden) {
  at::manual_seed(4);
  const at::Tensor q = at::randn({1, 20, 1, 8}), v = at::randn({1, 20, 1, 8});
  at::Tensor k = at::randn({1, 20, 1, 8});
  k.select(1, 12).fill_(NAN);
  const at::Tensor y = attention(q, k, v, /*causal=*/true);
  EXPECT_FALSE(y.narrow(1, 0, 12).isnan().any().item<bool>());
  EXPECT_TRUE(y.narrow(1, 12, 8).isnan().all().item<bool>());
}

}  // namespace
}  // namespace shardloom::ops
