#include "shardloom/features/recompute.h"

#include <gtest/gtest.h>

#include "shardloom/trainer/memory_counter.h"
#include "tests/features/nets.h"

namespace shardloom::features::testing {
namespace {

constexpr RecomputeMode kModes[] = {RecomputeMode::kSavedTensors, RecomputeMode::kReentrant};

void recompute_blocks(Net& net, RecomputeMode mode = RecomputeMode::kSavedTensors) {
  for (auto& block : net.blocks) recompute(*block, "block", mode);
}

class Recompute : public ::testing::TestWithParam<RecomputeMode> {};

// Drop path draws from the generator in forward: the same masks, and the same stream afterwards.
TEST_P(Recompute, LossGradientsAndRandomStreamAreThoseWithout) {
  Net off, on;
  recompute_blocks(on, GetParam());
  for (int step = 0; step < 2; ++step) expect_same_bits(run_step(on), run_step(off));
  EXPECT_EQ(off.runs(), 2 * 3);
  EXPECT_EQ(on.runs(), 2 * 2 * 3);
}

TEST_P(Recompute, EvaluationRunsOnce) {
  Net net;
  recompute_blocks(net, GetParam());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(net(net.ids()).requires_grad());
  EXPECT_EQ(net.runs(), 3);
}

TEST_P(Recompute, LowersThePeak) {
  trainer::install_memory_counter();
  const NetSizes sizes = {.dim = 32, .blocks = 8, .samples = 16, .length = 32};
  const auto peak = [&](bool on) {
    Net net(sizes);
    if (on) recompute_blocks(net, GetParam());
    const int64_t before = trainer::cpu_memory_use().allocated;
    trainer::reset_peak_memory();
    net(net.ids()).backward();
    return trainer::cpu_memory_use().max_allocated - before;
  };
  EXPECT_LT(peak(true), 0.4 * static_cast<double>(peak(false)));
}

TEST_P(Recompute, BackwardThroughAKeptGraphTwice) {
  Net net;
  const auto once = run_step(net).grads;
  recompute_blocks(net, GetParam());
  at::manual_seed(3);
  const at::Tensor loss = net(net.ids());
  for (int time = 0; time < 2; ++time) {
    loss.backward({}, /*keep_graph=*/true);
    expect_same_bits(take_gradients(net), once);
  }
}

TEST_P(Recompute, NestedModulesInBothModes) {
  Net off;
  const StepResult expected = run_step(off);
  for (const RecomputeMode inner : kModes) {
    Net on;
    for (auto& block : on.blocks) recompute(block->mlp, "mlp", inner);
    recompute_blocks(on, GetParam());
    expect_same_bits(run_step(on), expected);
  }
}

TEST_P(Recompute, TwoRecomputationsOfOneModule) {
  Net off, on;
  recompute_blocks(on);
  recompute_blocks(on, GetParam());
  expect_same_bits(run_step(on), run_step(off));
}

TEST_P(Recompute, FrozenParametersAndAFirstBlockWhoseInputNeedsNoGradient) {
  Net off, on;
  recompute_blocks(on, GetParam());
  for (Net* net : {&off, &on}) {
    net->embed.weight.set_requires_grad(false);
    net->blocks[1].qkv.weight.set_requires_grad(false);
  }
  expect_same_bits(run_step(on), run_step(off));
}

INSTANTIATE_TEST_SUITE_P(Modes, Recompute, ::testing::ValuesIn(kModes), [](const auto& info) {
  return info.param == RecomputeMode::kReentrant ? "Reentrant" : "SavedTensors";
});

TEST(RecomputeSavedTensors, GradientOfOnePartOfTheGraph) {
  Net off, on;
  recompute_blocks(on);
  const auto grad = [](Net& net) {
    at::manual_seed(3);
    return torch::autograd::grad({net(net.ids())}, {net.blocks[1].mlp.up.weight})[0];
  };
  EXPECT_TRUE(at::equal(grad(on), grad(off)));
}

TEST(RecomputeSavedTensors, TheLastProductOfTheSecondRunIsLeftOut) {
  // The second run stops at the last saved tensor, which is that of `after`'s input.
  class Tail : public nn::Callable<Tail> {
   public:
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = x.sin();
      ++started;
      const at::Tensor z = y.cos();
      ++ended;
      return z;
    }
    int started = 0, ended = 0;
  } tail;
  recompute(tail, "tail");
  tail(at::ones({2}).requires_grad_()).sum().backward();
  EXPECT_EQ(tail.started, 2);
  EXPECT_EQ(tail.ended, 1);
}

// What forward may take beside tensors.
struct Extra {
  at::Tensor scale;
  int power;
};
class ManyArguments : public nn::Callable<ManyArguments> {
 public:
  ManyArguments() : weight(at::full({2}, 1.5).requires_grad_()) {
    register_parameter("weight", weight);
  }
  std::pair<at::Tensor, std::vector<at::Tensor>> forward(const std::vector<at::Tensor>& xs,
                                                         const std::optional<at::Tensor>& none,
                                                         const at::Tensor& index,
                                                         const Extra& extra) {
    EXPECT_FALSE(none.has_value());
    const at::Tensor sum = (xs[0] * weight).sin() * (xs[1] * extra.scale).pow(extra.power);
    return {sum.index_select(0, index), {sum.exp(), index + 1}};
  }
  at::Tensor weight;
};

TEST(RecomputeSavedTensors, ListsOptionalsIntegersAndStructsPassThrough) {
  std::vector<std::vector<at::Tensor>> grads;
  for (const bool on : {false, true}) {
    ManyArguments module;
    if (on) recompute(module, "module");
    const at::Tensor a = at::tensor({0.3f, 0.4f}).requires_grad_(), b = at::tensor({2.f, 3.f});
    const auto [picked, list] =
        module(std::vector<at::Tensor>{a * 1, b}, std::optional<at::Tensor>(),
               at::ones({3}, at::kLong), Extra{at::full({2}, 0.5), 3});
    EXPECT_EQ(list[1].sum().item<int64_t>(), 6);
    (picked.sum() + list[0].sum()).backward();
    grads.push_back({a.grad(), module.weight.grad()});
  }
  EXPECT_TRUE(at::equal(grads[0][0], grads[1][0]));
  EXPECT_TRUE(at::equal(grads[0][1], grads[1][1]));
}

}  // namespace
}  // namespace shardloom::features::testing
