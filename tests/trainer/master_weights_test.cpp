#include "shardloom/trainer/master_weights.h"

#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/nn/layers.h"

namespace shardloom::trainer {
namespace {

class Net : public nn::Module {
 public:
  Net() {
    register_module("a", a);
    register_module("b", b);
    const at::NoGradGuard no_grad;
    a.weight.fill_(1.0);
    b.weight.fill_(1.0);
    a.weight.requires_grad_();
  }
  nn::Linear a{2, 2, false, at::TensorOptions().dtype(at::kFloat)};
  nn::Linear b{2, 2, false, at::TensorOptions().dtype(at::kFloat)};
};

TEST(MasterWeights, SmallUpdatesLiveOnInFp32AndShowOnceTheyAreLargeEnough) {
  Net net;
  MasterWeights weights(net, at::kBFloat16);
  EXPECT_EQ(net.a.weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(net.b.weight.scalar_type(), at::kBFloat16);
  ASSERT_EQ(weights.trained().size(), 1u);
  at::Tensor master = weights.trained()[0].value;
  EXPECT_EQ(master.scalar_type(), at::kFloat);
  for (int i = 0; i < 10; ++i) {
    master.sub_(1e-4);
    weights.refresh_model();
  }
  // A step of 1e-4 is below half of bf16's spacing under 1 (2^-9), ten of them round to it.
  EXPECT_FLOAT_EQ(master[0][0].item<float>(), 0.999f);
  master.sub_(1e-3);
  weights.refresh_model();
  EXPECT_LT(net.a.weight[0][0].item<float>(), 1.0f);
  EXPECT_TRUE(net.a.weight.requires_grad());
}

TEST(MasterWeights, GradientsOfMicroBatchesAddUpInFp32) {
  for (const std::optional<at::ScalarType> dtype :
       {std::optional<at::ScalarType>(), std::optional<at::ScalarType>(at::kBFloat16)}) {
    Net net;
    MasterWeights weights(net, dtype);
    const at::Tensor x = at::ones({1, 2}, net.a.weight.options().requires_grad(false));
    // 256 + 1 is not a bf16 number; the fp32 sum keeps it.
    for (const double scale : {256.0, 1.0}) {
      (net.a(x).sum() * scale).backward();
      weights.collect_gradients();
    }
    EXPECT_FLOAT_EQ(weights.trained()[0].grad[0][0].item<float>(), 257.0f);
    weights.zero_grad();
    EXPECT_FALSE(weights.trained()[0].grad.defined());
    EXPECT_FALSE(net.a.weight.grad().defined());
  }
}

TEST(MasterWeights, AllNamesFp32WeightsForExport) {
  Net net;
  MasterWeights weights(net, at::kBFloat16);
  const auto all = weights.all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].name, "b.weight");
  EXPECT_EQ(all[1].tensor->scalar_type(), at::kFloat);
}

TEST(MasterWeights, TypesByName) {
  EXPECT_FALSE(compute_dtype(std::nullopt).has_value());
  EXPECT_FALSE(compute_dtype("fp32").has_value());
  EXPECT_EQ(compute_dtype("bf16"), at::kBFloat16);
  EXPECT_THROW(compute_dtype("fp64"), ConfigError);
}

}  // namespace
}  // namespace shardloom::trainer
