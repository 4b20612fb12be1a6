// Experts on several ranks: outputs and gradients of given values, whatever the cut.
#include <gmock/gmock.h>

#include "shardloom/ops/moe.h"
#include "shardloom/parallel/expert_parallel.h"
#include "tests/parallel/nets.h"
#include "tests/testing/experts_case.h"

namespace shardloom::parallel::testing {
namespace {

using shardloom::testing::experts_case;
using shardloom::testing::ExpertsCase;

constexpr int64_t kExperts = 8;
// fp32 rounding of sums of a few products of order 1.
constexpr double kTolerance = 2e-6;

class Experts : public nn::Callable<Experts> {
 public:
  explicit Experts(const ExpertsCase& c) : gate_up(c.gate_up.clone()), down(c.down.clone()) {
    register_parameter("gate_up", gate_up);
    register_parameter("down", down);
    gate_up.requires_grad_();
    down.requires_grad_();
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weights, const at::Tensor& ids) {
    return ops::moe_experts(x, {weights, ids}, gate_up, down);
  }
  at::Tensor gate_up, down;
};

class Layer : public nn::Callable<Layer> {
 public:
  explicit Layer(const ExpertsCase& c) : experts(c) { register_module("experts", experts); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& logits, int64_t top_k) {
    const ops::Routing routing = ops::route_top_k(logits, top_k, /*normalize=*/true);
    return experts(x, routing.weights_TK, routing.experts_TK);
  }
  Experts experts;
};

// First tokens of the ranks, and the end.
struct Cut {
  std::vector<int64_t> first;
  int ranks() const { return static_cast<int>(first.size()) - 1; }
};
const Cut kCuts[] = {{{0, 7}}, {{0, 4, 7}}, {{0, 7, 7}}, {{0, 2, 4, 6, 7}}, {{0, 0, 7, 7, 7}}};

void expect_near(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  if (got.numel() == 0) return;
  EXPECT_LT((got.to(at::kDouble) - expected).abs().max().item<double>(), kTolerance) << what;
}

// All experts busy on all tokens: what later calls find in the allocator is not zero.
void warm_up(Layer& layer, const ExpertsCase& c) {
  layer(at::ones_like(c.x), at::zeros_like(c.logits), kExperts).sum().backward();
  for (at::Tensor* p : {&layer.experts.gate_up, &layer.experts.down}) {
    EXPECT_GT(p->grad().abs().max().item<float>(), 0);
    p->mutable_grad().reset();
  }
}

void run_case(const RankContext& rank, const Cut& cut, DispatcherKind kind, int64_t parts) {
  const ExpertsCase c = experts_case();
  Layer layer(c);
  const auto group = world_of(rank)->group();
  expert_parallel(layer, {{"experts"}, kExperts, kind}, group);
  warm_up(layer, c);
  const int64_t first = cut.first[rank.rank], own = cut.first[rank.rank + 1] - first;
  // Micro batches; the last ones of a rank may be empty.
  const int64_t size = (own + parts - 1) / parts;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t from = std::min(part * size, own), count = std::min(size, own - from);
    const auto rows = [&](const at::Tensor& all) { return all.narrow(0, first + from, count); };
    const at::Tensor x = rows(c.x).clone().requires_grad_();
    const at::Tensor logits = rows(c.logits).clone().requires_grad_();
    const at::Tensor y = layer(x, logits, 2);
    expect_near(y.detach(), rows(c.y), "y");
    y.backward(rows(c.dy));
    expect_near(x.grad(), rows(c.dx), "dx");
    expect_near(logits.grad(), rows(c.dlogits), "dlogits");
  }
  const int64_t experts = kExperts / rank.size, begin = rank.rank * experts;
  const int64_t H = c.x.size(1), I = c.gate_up.size(1) / 2;
  const at::Tensor gate_up = layer.experts.gate_up.grad(), down = layer.experts.down.grad();
  expect_near(gate_up, c.dgate_up.narrow(0, begin * H, experts * H), "dgate_up");
  expect_near(down, c.ddown.narrow(0, begin * I, experts * I), "ddown");
  for (const int64_t e : c.idle_experts) {
    if (e < begin || e >= begin + experts) continue;
    EXPECT_EQ(gate_up.narrow(0, (e - begin) * H, H).abs().max().item<float>(), 0.0f);
    EXPECT_EQ(down.narrow(0, (e - begin) * I, I).abs().max().item<float>(), 0.0f);
  }
}

class ExpertParallel : public ::testing::TestWithParam<std::tuple<int, DispatcherKind, int64_t>> {};

TEST_P(ExpertParallel, GivesTheGivenValues) {
  const auto [index, kind, parts] = GetParam();
  const Cut& cut = kCuts[index];
  expect_ranks(cut.ranks(), [&, kind = kind, parts = parts](const RankContext& rank) {
    run_case(rank, cut, kind, parts);
  });
}

INSTANTIATE_TEST_SUITE_P(Cuts,
                         ExpertParallel,
                         ::testing::Combine(::testing::Range(0, 5),
                                            ::testing::Values(DispatcherKind::kAllToAll,
                                                              DispatcherKind::kAllGather),
                                            ::testing::Values(1, 2, 3)));

// What the all-to-all sends is what the tokens need, no more: rank r to rank s.
TEST(TokenDispatcher, SendsEachTokenToTheRanksOfItsExperts) {
  const Cut& cut = kCuts[3];
  expect_ranks(4, [&](const RankContext& rank) {
    const ExpertsCase c = experts_case();
    const auto dispatcher =
        make_token_dispatcher(DispatcherKind::kAllToAll, kExperts, world_of(rank)->group(), "test");
    const int64_t first = cut.first[rank.rank], own = cut.first[rank.rank + 1] - first;
    const ops::Routing routing = ops::route_top_k(c.logits.narrow(0, first, own), 2, true);
    const auto local =
        dispatcher->dispatch(c.x.narrow(0, first, own), routing.weights_TK, routing.experts_TK);
    const int64_t rows[] = {8, 5, 1, 0};  // column sums of the case's table of four ranks
    EXPECT_EQ(local.x.size(0), rows[rank.rank]);
    EXPECT_EQ(local.experts.sizes(), (std::vector<int64_t>{rows[rank.rank], 1}));
    dispatcher->combine(local.x);
  });
}

TEST(ExpertParallel, ExpertsThatDoNotDivideAreRefused) {
  expect_ranks(3, [](const RankContext& rank) {
    Layer layer(experts_case());
    EXPECT_THAT(config_error([&] {
                  expert_parallel(layer, {{"experts"}, kExperts, {}}, world_of(rank)->group());
                }),
                ::testing::HasSubstr("8 experts do not divide among 3 ranks"));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
