// Sequences on several ranks: outputs and gradients of the whole, for head counts and lengths that
// do not divide, and for several models in one process.
#include <gmock/gmock.h>

#include "shardloom/nn/attention.h"
#include "shardloom/parallel/context_parallel.h"
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

constexpr int64_t kHeadDim = 6;
constexpr int64_t kDim = 10;
// fp32 rounding of sums of some hundred products, relative to the largest value or 1.
constexpr double kTolerance = 1e-5;

struct Heads {
  int64_t query, key_value;
};

// Causal self-attention with a residual, [B, S, kDim].
class Layer : public nn::Callable<Layer> {
 public:
  explicit Layer(Heads heads)
      : q(kDim, heads.query * kHeadDim, false, kFloats),
        k(kDim, heads.key_value * kHeadDim, false, kFloats),
        v(kDim, heads.key_value * kHeadDim, false, kFloats),
        out(heads.query * kHeadDim, kDim, false, kFloats),
        core(/*causal=*/true, std::make_shared<nn::RopeCache>(kHeadDim, 100.0)) {
    register_module("q", q);
    register_module("k", k);
    register_module("v", v);
    register_module("out", out);
    register_module("core", core);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto split = [&](nn::Linear& linear) { return linear(x).unflatten(-1, {-1, kHeadDim}); };
    return x + out(core(split(q), split(k), split(v)).flatten(2));
  }
  static constexpr auto kFloats = at::kFloat;
  nn::Linear q, k, v, out;
  nn::Attention core;
};

// A layer whose output is joined and cut again, as a vision model before the decoder is.
class TwoLayers : public nn::Callable<TwoLayers> {
 public:
  explicit TwoLayers(Heads heads) : first(heads), second(heads) {
    register_module("first", first);
    register_module("second", second);
  }
  // The joined features are mixed by position, which a part of them could not be.
  at::Tensor forward(const at::Tensor& x) { return second(first(x).flip(1)); }
  Layer first, second;
};

ContextParallelSeams seams() {
  return {.split_inputs = {"first", "second"},
          .gather_outputs = {"first"},
          .attention = {"first.core", "second.core"}};
}

at::Tensor input_of(int64_t length) {
  at::manual_seed(static_cast<uint64_t>(length));
  return at::randn({2, length, kDim});
}

struct Pass {
  at::Tensor y, dx;
  std::vector<at::Tensor> gradients;
};

Pass run_pass(TwoLayers& net, int64_t length, const distributed::Group& group) {
  for (const auto& p : net.named_parameters()) p.tensor->mutable_grad().reset();
  const at::Tensor x = input_of(length).requires_grad_();
  const at::Tensor weights = at::sin(at::arange(length * kDim)).view({1, length, kDim});
  const at::Tensor y = net(x);
  (y * own_part(weights, 1, group)).sum().backward();
  Pass result{y.detach(), x.grad(), {}};
  for (const auto& p : net.named_parameters()) result.gradients.push_back(p.tensor->grad());
  return result;
}

void expect_near(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_LT((got - expected).abs().max().item<double>(),
            kTolerance * std::max(1.0, expected.abs().max().item<double>()))
      << what;
}

class ContextParallel : public ::testing::TestWithParam<std::pair<int, std::vector<Heads>>> {};

TEST_P(ContextParallel, OutputsAndGradientsAreThoseOfTheWhole) {
  const auto& [ranks, models] = GetParam();
  expect_ranks(ranks, [&models = models](const RankContext& rank) {
    const auto group = world_of(rank)->group();
    const auto alone = World::alone();
    std::vector<std::unique_ptr<TwoLayers>> whole, cut;  // all alive at once
    for (const Heads heads : models) {
      whole.push_back(std::make_unique<TwoLayers>(heads));
      cut.push_back(std::make_unique<TwoLayers>(heads));
      fill_parameters(*whole.back());
      fill_parameters(*cut.back());
      context_parallel(*cut.back(), seams(), group);
    }
    // Longer than, as long as, and shorter than the number of ranks; the picture of 5 positions.
    for (const int64_t length : {23, 16, 5, 4, 1}) {
      for (size_t m = 0; m < models.size(); ++m) {
        const std::string what = fmt::format("model {}, length {}", m, length);
        const Pass expected = run_pass(*whole[m], length, *alone->group());
        const Pass got = run_pass(*cut[m], length, *group);
        if (got.y.numel() > 0) expect_near(got.y, own_part(expected.y, 1, *group), what);
        at::Tensor dx = got.dx.clone();
        group->all_reduce(dx, distributed::Reduction::kSum).wait();
        expect_near(dx, expected.dx, what + ", dx");
        for (size_t i = 0; i < got.gradients.size(); ++i) {
          at::Tensor sum = got.gradients[i].clone();
          group->all_reduce(sum, distributed::Reduction::kSum).wait();
          expect_near(sum, expected.gradients[i], what + ", parameter " + std::to_string(i));
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Heads,
                         ContextParallel,
                         ::testing::Values(std::pair{2,
                                                     std::vector<Heads>{{4, 1}, {12, 4}, {2, 2}}},
                                           std::pair{4, std::vector<Heads>{{4, 1}, {12, 2}}},
                                           std::pair{3, std::vector<Heads>{{12, 3}, {3, 1}}}));

TEST(ContextParallelHeads, ThatDoNotDivideAreNamed) {
  expect_ranks(2, [](const RankContext& rank) {
    TwoLayers net({3, 3});
    context_parallel(net, seams(), world_of(rank)->group());
    EXPECT_THAT(config_error([&] { net(input_of(8)); }),
                ::testing::HasSubstr("first.core: 3 heads and 3 key/value heads do not divide"));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
