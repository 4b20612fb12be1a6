// What goes wrong in a recomputed module is named and leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/features/recompute.h"
#include "shardloom/trainer/memory_counter.h"
#include "tests/features/nets.h"

namespace shardloom::features::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs the function that belongs to the number of the run.
class Changing : public nn::Callable<Changing> {
 public:
  using Run = std::function<at::Tensor(const at::Tensor&)>;
  explicit Changing(std::vector<Run> runs) : runs_(std::move(runs)) {}
  at::Tensor forward(const at::Tensor& x) { return runs_.at(next_++)(x); }

 private:
  std::vector<Run> runs_;
  size_t next_ = 0;
};

std::string error_of_backward(Changing&& module) {
  recompute(module, "layers.7");
  const at::Tensor y = module(at::ones({2, 3}).requires_grad_());
  return error_of<InternalError>([&] { y.sum().backward(); });
}

TEST(RecomputeFailure, AnotherShapeNamesTheModuleAndTheTensor) {
  const std::string error = error_of_backward(
      Changing({[](const at::Tensor& x) { return x.sin().exp(); },
                [](const at::Tensor& x) { return x.sin().narrow(1, 0, 2).exp(); }}));
  EXPECT_THAT(error, AllOf(HasSubstr("layers.7"), HasSubstr("saved tensor 1 of 2"),
                           HasSubstr("Float [2, 3] on cpu"), HasSubstr("Float [2, 2] on cpu")));
}

TEST(RecomputeFailure, FewerTensorsAreCounted) {
  const std::string error =
      error_of_backward(Changing({[](const at::Tensor& x) { return x.sin().exp(); },
                                  [](const at::Tensor& x) { return x.sin(); }}));
  EXPECT_THAT(error, AllOf(HasSubstr("layers.7"), HasSubstr("saved 2 tensors in forward but 1")));
}

TEST(RecomputeFailure, BackwardInsideOfForwardIsRefused) {
  Changing module({[](const at::Tensor& x) {
    const at::Tensor y = x.sin();
    return torch::autograd::grad({y.sum()}, {x})[0] * y;
  }});
  recompute(module, "layers.7");
  EXPECT_THAT(error_of<InternalError>([&] { module(at::ones({2}).requires_grad_()); }),
              HasSubstr("layers.7"));
}

TEST(RecomputeFailure, ReentrantRefusesAutogradGrad) {
  Net net;
  recompute(net.blocks[1], "blocks.1", RecomputeMode::kReentrant);
  EXPECT_THAT(
      error_of<InternalError>([&] { torch::autograd::grad({net(net.ids())}, {net.embed.weight}); }),
      AllOf(HasSubstr("blocks.1"), HasSubstr("use_reentrant")));
}

TEST(RecomputeFailure, AListOfModulesIsRefused) {
  Net net;
  EXPECT_THAT(error_of<ConfigError>([&] { recompute(net.blocks, "blocks"); }), HasSubstr("blocks"));
}

// Throws in run number `fatal`.
class Throwing : public nn::Callable<Throwing> {
 public:
  explicit Throwing(Block& block) : block_(block) { register_module("block", block); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = block_(x);
    if (++runs == fatal) throw DataError("run {}", fatal);
    return y.sin();  // saves y, so that the second run comes this far
  }
  int fatal = 0, runs = 0;

 private:
  Block& block_;
};

TEST(RecomputeFailure, AnExceptionInEitherRunLeavesNothingBehind) {
  trainer::install_memory_counter();
  for (const RecomputeMode mode : {RecomputeMode::kSavedTensors, RecomputeMode::kReentrant}) {
    for (const int fatal : {1, 2}) {
      Block block(8);
      fill_parameters(block);
      Throwing module(block);
      recompute(module, "module", mode);
      const at::Tensor x = at::ones({2, 3, 8}).requires_grad_();
      const auto loss = [&] { return (module(x) * 2).exp().sum(); };
      module.fatal = fatal;
      const int64_t before = trainer::cpu_memory_use().allocated;
      at::manual_seed(5);
      EXPECT_THROW(loss().backward(), DataError);
      x.mutable_grad().reset();
      EXPECT_EQ(trainer::cpu_memory_use().allocated, before) << "run " << fatal;
      module.fatal = 0;
      const StepResult after = run_step(module, loss);
      at::manual_seed(3);
      (block(x).sin() * 2).exp().sum().backward();
      expect_same_bits(after.grads, take_gradients(module));
    }
  }
}

}  // namespace
}  // namespace shardloom::features::testing
