#include "shardloom/ops/moe.h"

#include <gtest/gtest.h>

#include "shardloom/ops/moe_composed.h"
#include "shardloom/ops/moe_fused.h"
#include "tests/testing/experts_case.h"

namespace shardloom::ops {
namespace {

using testing::experts_case;
using testing::ExpertsCase;
using testing::max_difference;

using Experts = at::Tensor (*)(const at::Tensor&,
                               const Routing&,
                               const at::Tensor&,
                               const at::Tensor&);

struct Gradients {
  at::Tensor y, x, logits, gate_up, down;
};

Gradients run(const at::Tensor& x,
              const at::Tensor& logits,
              int64_t k,
              bool normalize,
              const at::Tensor& gate_up,
              const at::Tensor& down,
              const at::Tensor& grad,
              Experts experts = &moe_experts) {
  const at::Tensor x1 = x.clone().requires_grad_(), l1 = logits.clone().requires_grad_();
  const at::Tensor gu = gate_up.clone().requires_grad_(), d = down.clone().requires_grad_();
  const at::Tensor y = experts(x1, route_top_k(l1, k, normalize), gu, d);
  y.backward(grad);
  return {y.detach(), x1.grad(), l1.grad(), gu.grad(), d.grad()};
}

// The same by a loop over tokens and experts, in double.
Gradients run_loop(const at::Tensor& x,
                   const at::Tensor& logits,
                   int64_t k,
                   bool normalize,
                   const at::Tensor& gate_up,
                   const at::Tensor& down,
                   const at::Tensor& grad) {
  const at::Tensor x1 = x.to(at::kDouble).requires_grad_(),
                   l1 = logits.to(at::kDouble).requires_grad_();
  const at::Tensor gu = gate_up.to(at::kDouble).requires_grad_(),
                   d = down.to(at::kDouble).requires_grad_();
  auto [w, ids] = at::topk(at::softmax(l1, -1), k, -1);
  if (normalize) w = w / w.sum(-1, true);
  const int64_t H = x.size(1), I = gate_up.size(1) / 2;
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < x.size(0); ++t) {
    at::Tensor sum = at::zeros({1, H}, at::kDouble);
    for (int64_t j = 0; j < k; ++j) {
      const auto e = ids[t][j].item<int64_t>();
      const at::Tensor h = at::mm(x1.narrow(0, t, 1), gu.narrow(0, e * H, H));
      const at::Tensor act = at::silu(h.narrow(1, 0, I)) * h.narrow(1, I, I);
      sum = sum + w[t][j] * at::mm(act, d.narrow(0, e * I, I));
    }
    rows.push_back(sum);
  }
  const at::Tensor y = at::cat(rows, 0);
  y.backward(grad.to(at::kDouble));
  return {y.detach(), x1.grad(), l1.grad(), gu.grad(), d.grad()};
}

void expect_near(const Gradients& a, const Gradients& b, double tolerance) {
  EXPECT_LT(max_difference(a.y, b.y), tolerance);
  EXPECT_LT(max_difference(a.x, b.x), tolerance);
  EXPECT_LT(max_difference(a.logits, b.logits), tolerance);
  EXPECT_LT(max_difference(a.gate_up, b.gate_up), tolerance);
  EXPECT_LT(max_difference(a.down, b.down), tolerance);
}

// fp32 rounding of sums of a few products of order 1.
TEST(MoeExperts, EqualsGivenValuesOfSevenTokensAndEightExperts) {
  const ExpertsCase c = experts_case();
  const Gradients got = run(c.x, c.logits, 2, true, c.gate_up, c.down, c.dy);
  const Gradients expected{c.y, c.dx, c.dlogits, c.dgate_up, c.ddown};
  // Token 5 has an exact three-way tie, and the case keeps experts 2 and 3.
  expect_near(got, expected, 2e-6);
}

TEST(MoeExperts, IdleExpertsGetExactlyZeroGradientsFromADirtyAllocator) {
  const ExpertsCase c = experts_case();
  const int64_t H = c.x.size(1), I = c.gate_up.size(1) / 2;
  {
    const Gradients busy = run(c.x, at::randn({7, 8}), 8, true, c.gate_up, c.down, c.dy);
    EXPECT_GT(busy.gate_up.abs().max().item<float>(), 0);
  }
  const Gradients got = run(c.x, c.logits, 2, true, c.gate_up, c.down, c.dy);
  for (const int64_t e : {5, 6, 7}) {
    EXPECT_EQ(got.gate_up.narrow(0, e * H, H).abs().max().item<float>(), 0.0f);
    EXPECT_EQ(got.down.narrow(0, e * I, I).abs().max().item<float>(), 0.0f);
  }
}

TEST(MoeExperts, NoTokenAtAll) {
  const at::Tensor x = at::zeros({0, 4}), gate_up = at::randn({8, 6}), down = at::randn({6, 4});
  const Gradients got = run(x, at::zeros({0, 2}), 1, true, gate_up, down, at::zeros({0, 4}));
  EXPECT_EQ(got.y.size(0), 0);
  EXPECT_EQ(got.gate_up.abs().max().item<float>(), 0.0f);
  EXPECT_EQ(got.down.abs().max().item<float>(), 0.0f);
}

class MoeShapes
    : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t, int64_t, bool>> {};

TEST_P(MoeShapes, EqualsALoop) {
  const auto [experts, k, hidden, inner, normalize] = GetParam();
  at::manual_seed(experts);
  const at::Tensor x = at::randn({13, hidden}), logits = at::randn({13, experts});
  const at::Tensor gate_up = at::randn({experts * hidden, 2 * inner}) * 0.3,
                   down = at::randn({experts * inner, hidden}) * 0.3;
  const at::Tensor grad = at::randn({13, hidden});
  expect_near(run(x, logits, k, normalize, gate_up, down, grad),
              run_loop(x, logits, k, normalize, gate_up, down, grad), 5e-5);
}

// The composed path that devices take, with and without ATen's grouped product (rows of whole 16
// bytes).
TEST_P(MoeShapes, ComposedEqualsFused) {
  const auto [experts, k, hidden, inner, normalize] = GetParam();
  at::manual_seed(experts);
  const at::Tensor x = at::randn({13, hidden}), logits = at::randn({13, experts});
  const at::Tensor gate_up = at::randn({experts * hidden, 2 * inner}) * 0.3,
                   down = at::randn({experts * inner, hidden}) * 0.3;
  const at::Tensor grad = at::randn({13, hidden});
  expect_near(run(x, logits, k, normalize, gate_up, down, grad, &fused_moe_experts),
              run(x, logits, k, normalize, gate_up, down, grad, &composed_moe_experts), 2e-5);
}

// (4, 2, 8, 4): H = 2I, where a wrong layout still fits.
INSTANTIATE_TEST_SUITE_P(Odd,
                         MoeShapes,
                         ::testing::Values(std::tuple{6, 3, 20, 9, true},
                                           std::tuple{1, 1, 6, 5, true},
                                           std::tuple{4, 2, 8, 4, false},
                                           std::tuple{17, 8, 16, 24, true}));

TEST(MoeExperts, ComposedTakesNoTokens) {
  const at::Tensor x = at::zeros({0, 8}), gate_up = at::randn({16, 8}), down = at::randn({8, 8});
  const Gradients got =
      run(x, at::zeros({0, 2}), 1, true, gate_up, down, at::zeros({0, 8}), &composed_moe_experts);
  EXPECT_EQ(got.y.sizes(), at::IntArrayRef({0, 8}));
  EXPECT_EQ(got.gate_up.abs().max().item<float>(), 0.0f);
  EXPECT_EQ(got.down.abs().max().item<float>(), 0.0f);
}

// Expert parallelism and smaller micro batches leave experts with a token or two. (BLAS cuts
// products among its threads, so this holds for one thread.)
TEST(MoeExperts, ATokensBitsDoNotDependOnTheOthers) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({60, 64}), logits = at::randn({60, 4}), grad = at::randn({60, 64});
  const at::Tensor gate_up = at::randn({256, 96}) * 0.2, down = at::randn({192, 64}) * 0.2;
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Gradients all = run(x, logits, 2, true, gate_up, down, grad);
  for (const int64_t count : {1, 2, 3, 5, 9, 20, 30}) {
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, 7, count); };
    const Gradients few = run(part(x), part(logits), 2, true, gate_up, down, part(grad));
    EXPECT_TRUE(at::equal(few.y, part(all.y))) << count;
    EXPECT_TRUE(at::equal(few.x, part(all.x))) << count;
  }
  at::set_num_threads(before);
}

// Experts run in parallel and their rows are summed in a fixed order. (Another number of threads
// may change the bits: MKL then cuts its products otherwise.)
TEST(MoeExperts, SeveralThreadsGiveTheSameBitsEachTime) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({50, 16}), logits = at::randn({50, 8}),
                   gate_up = at::randn({128, 24}), down = at::randn({96, 16});
  const at::Tensor grad = at::randn({50, 16});
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const Gradients first = run(x, logits, 2, true, gate_up, down, grad);
  for (int again = 0; again < 5; ++again)
    expect_near(run(x, logits, 2, true, gate_up, down, grad), first, 1e-300);
  at::set_num_threads(before);
}

// bf16 keeps 8 bits: stored gate/up products and results are off by 2^-9 relative each.
TEST(MoeExperts, Bf16StaysNearTheValueOfItsRoundedInputs) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({20, 32}).to(at::kBFloat16),
                   logits = at::randn({20, 4}).to(at::kBFloat16);
  const at::Tensor gate_up = (at::randn({128, 32}) * 0.2).to(at::kBFloat16),
                   down = (at::randn({64, 32}) * 0.2).to(at::kBFloat16);
  const at::Tensor grad = at::randn({20, 32}).to(at::kBFloat16);
  const Gradients low = run(x, logits, 2, true, gate_up, down, grad);
  const Gradients high = run(x.to(at::kFloat), logits.to(at::kFloat), 2, true,
                             gate_up.to(at::kFloat), down.to(at::kFloat), grad.to(at::kFloat));
  EXPECT_EQ(low.gate_up.scalar_type(), at::kBFloat16);
  EXPECT_LT(max_difference(low.y, high.y), 0.02 * high.y.abs().max().item<double>());
  EXPECT_LT(max_difference(low.gate_up, high.gate_up),
            0.02 * high.gate_up.abs().max().item<double>());
  EXPECT_LT(max_difference(low.x, high.x), 0.02 * high.x.abs().max().item<double>());
}

}  // namespace
}  // namespace shardloom::ops
