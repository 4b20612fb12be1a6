#include "shardloom/features/activation_offload.h"

#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/features/host_arena.h"
#include "shardloom/features/recompute.h"
#include "shardloom/trainer/memory_counter.h"
#include "tests/features/nets.h"

namespace shardloom::features::testing {
namespace {

template <typename Blocks>
std::vector<nn::Module*> modules_of(Blocks& blocks) {
  std::vector<nn::Module*> modules;
  for (auto& block : blocks) modules.push_back(block.get());
  return modules;
}

TEST(ActivationOffload, LossGradientsAndRandomStreamAreThoseWithout) {
  for (const bool recomputes : {false, true}) {
    Net off, on;
    if (recomputes) {
      for (auto& block : on.blocks) recompute(*block, "block");
    }
    const ActivationOffload offload(modules_of(on.blocks));
    for (int step = 0; step < 2; ++step) expect_same_bits(run_step(on), run_step(off));
    // Two of three blocks, each with one copy of its input [6, 5, 24].
    const OffloadCounters counters = offload.counters();
    EXPECT_EQ(counters.bytes_to_host, 2 * 2 * 6 * 5 * 24 * 4);
    EXPECT_EQ(counters.bytes_to_device, counters.bytes_to_host);
    EXPECT_EQ(counters.late_fetches, 0);
  }
}

TEST(ActivationOffload, BackwardThroughAKeptGraphTwice) {
  Net net;
  const auto once = run_step(net).grads;
  const ActivationOffload offload(modules_of(net.blocks));
  at::manual_seed(3);
  const at::Tensor loss = net(net.ids());
  for (int time = 0; time < 2; ++time) {
    loss.backward({}, /*keep_graph=*/true);
    expect_same_bits(take_gradients(net), once);
  }
}

// Saves views of its input, the input twice, a view of a parameter, an empty tensor, and parts.
class OddSaves : public nn::Callable<OddSaves> {
 public:
  OddSaves() : weight(at::empty({16}, at::kFloat)) { register_parameter("weight", weight); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor products = at::mm(x, x.t());
    const at::Tensor part = x.narrow(1, 0, 2).pow(2);
    const at::Tensor empty = x.narrow(0, 0, 0).exp() * at::zeros({0, 4}).requires_grad_();
    return 0.1 * (products + weight.view({4, 4}) * x + at::cat({part, part}, 1)) + empty.sum();
  }
  at::Tensor weight;
};

class OddNet : public nn::Module {
 public:
  OddNet() {
    for (int i = 0; i < 3; ++i) blocks.emplace_back();
    register_module("blocks", blocks);
    fill_parameters(*this);
  }
  at::Tensor loss(int step) {
    at::Tensor x = (at::arange(16, at::kFloat) + step).sin().view({4, 4}).requires_grad_() * 1;
    for (auto& block : blocks) x = (*block)(x);
    return x.pow(2).sum();
  }
  nn::ModuleList<OddSaves> blocks;
};

TEST(ActivationOffload, ViewsShareOneCopyAndParametersStay) {
  OddNet off, on;
  const ActivationOffload offload(modules_of(on.blocks));
  for (int step = 0; step < 3; ++step) {
    const StepResult expected = run_step(off, [&] { return off.loss(step); });
    expect_same_bits(run_step(on, [&] { return on.loss(step); }), expected);
  }
  EXPECT_EQ(offload.counters().bytes_to_host, 3 * 2 * 16 * 4);
  EXPECT_EQ(offload.counters().bytes_to_device, 3 * 2 * 16 * 4);
}

TEST(ActivationOffload, AChangeInPlaceBetweenTwoSavesMakesTwoCopies) {
  class InPlace : public nn::Callable<InPlace> {
   public:
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor before = x.sin();
      x.mul_(2);
      return before * x.cos();
    }
  };
  nn::ModuleList<InPlace> blocks;
  for (int i = 0; i < 2; ++i) blocks.emplace_back();
  const auto grad = [&] {
    const at::Tensor x = at::tensor({0.2, 0.3}).requires_grad_();
    const at::Tensor changed = x * 1;
    (*blocks.begin())->operator()(changed).sum().backward();
    return x.grad();
  };
  const ActivationOffload offload(modules_of(blocks));
  const at::Tensor x = at::tensor({0.2, 0.3});  // d/dx sin(x) cos(2x)
  EXPECT_TRUE(at::allclose(grad(), x.cos() * (2 * x).cos() - 2 * x.sin() * (2 * x).sin()));
  EXPECT_EQ(offload.counters().bytes_to_host, 2 * 2 * 8);
}

TEST(ActivationOffload, InputsThatCannotMoveStay) {
  class Sine : public nn::Callable<Sine> {
   public:
    at::Tensor forward(const at::Tensor& x) { return x.sin(); }
  };
  nn::ModuleList<Sine> blocks;
  for (int i = 0; i < 2; ++i) blocks.emplace_back();
  const ActivationOffload offload(modules_of(blocks));
  const at::Tensor leaf = at::ones({4, 2}).requires_grad_(), wide = leaf * 1;
  (blocks[0](leaf) + blocks[0](at::ones({4, 2})) + blocks[0](wide.narrow(0, 0, 1)))
      .sum()
      .backward();
  EXPECT_TRUE(at::allclose(leaf.grad().select(0, 0), at::full({2}, 5 * std::cos(1.0))));
  {
    const at::NoGradGuard no_grad;
    blocks[0](wide);
  }
  EXPECT_EQ(offload.counters().bytes_to_host, 0);
}

TEST(ActivationOffload, AListOfModulesIsRefused) {
  Net net;
  EXPECT_THROW(ActivationOffload({&net.blocks}), ConfigError);
}

// What waits for backward is the last block's input alone, and the host memory is used again.
TEST(ActivationOffload, FreesTheInputsAndReusesTheHostMemory) {
  trainer::install_memory_counter();
  const NetSizes sizes = {.dim = 32, .blocks = 10, .samples = 16, .length = 32};
  const int64_t input = 16 * 32 * 32 * 4;
  const auto held_after_forward = [&](Net& net) {
    const int64_t before = trainer::cpu_memory_use().allocated;
    const at::Tensor loss = net(net.ids());
    const int64_t held = trainer::cpu_memory_use().allocated - before;
    loss.backward();
    take_gradients(net);
    return held;
  };
  Net off(sizes), on(sizes);
  for (Net* net : {&off, &on}) {
    for (auto& block : net->blocks) recompute(*block, "block");
  }
  const ActivationOffload offload(modules_of(on.blocks));
  const int64_t without = held_after_forward(off);
  EXPECT_NEAR(without - held_after_forward(on), 9 * input, 0.1 * input);
  const int64_t host_bytes = offload.counters().host_bytes;
  EXPECT_EQ(host_bytes, 9 * input);
  held_after_forward(on);
  EXPECT_EQ(offload.counters().host_bytes, host_bytes);
}

TEST(ActivationOffload, AnExceptionInABlockLeavesNothingBehind) {
  class Failing : public nn::Callable<Failing> {
   public:
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = x.sin();
      if (fails) throw DataError("fails");
      return y;
    }
    bool fails = true;
  };
  trainer::install_memory_counter();
  nn::ModuleList<Failing> blocks;
  for (int i = 0; i < 2; ++i) blocks.emplace_back();
  const ActivationOffload offload(modules_of(blocks));
  const at::Tensor x = at::ones({2}).requires_grad_();
  const int64_t before = trainer::cpu_memory_use().allocated;
  EXPECT_THROW(blocks[0](x * 1), DataError);
  EXPECT_EQ(trainer::cpu_memory_use().allocated, before);
  blocks[0].fails = false;
  blocks[0](x * 1).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), at::full({2}, std::cos(1.0))));
}

TEST(HostArena, BlocksAreReusedUnlessMuchTooLong) {
  HostArena arena(/*pinned=*/false);
  at::Tensor block = arena.take(100'000);
  const void* memory = block.const_data_ptr();
  EXPECT_GE(block.numel(), 100'000);
  arena.give_back(std::move(block));
  EXPECT_EQ(arena.take(90'000).const_data_ptr(), memory);
  const int64_t bytes = arena.num_bytes();
  arena.give_back(arena.take(1'000'000));
  EXPECT_GT(arena.num_bytes(), bytes + 900'000);
  EXPECT_LT(arena.take(1000).numel(), 100'000);
}

}  // namespace
}  // namespace shardloom::features::testing
