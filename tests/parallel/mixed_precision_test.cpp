// Types at the cast points, and the arithmetic that follows from them: bit for bit against one
// process that casts, sums in rank order in fp32 and rounds at the same places.
#include <gmock/gmock.h>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kFp32 = at::kFloat;
constexpr auto kBf16 = at::kBFloat16;
constexpr auto kFp16 = at::kHalf;

// A Tower with all parameters cast, as units see it; gradients land on its leaves.
void cast_parameters(const Tower& from, Tower& to, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const auto source = from.named_parameters(), target = to.named_parameters();
  for (size_t i = 0; i < source.size(); ++i)
    *target[i].tensor = source[i].tensor->detach().to(dtype, false, true).requires_grad_();
}

// Gradients of the master weights `whole`: each rank's in param_dtype, sent in reduce_dtype, summed
// in rank order and averaged in fp32, rounded to reduce_dtype.
Tensors expected_gradients(const Tower& whole,
                           int ranks,
                           int step,
                           at::ScalarType param_dtype,
                           at::ScalarType reduce_dtype) {
  Tensors sums;
  for (int r = 0; r < ranks; ++r) {
    Tower cast;
    cast_parameters(whole, cast, param_dtype);
    loss_of(cast, inputs_of(r, step).to(param_dtype)).backward();
    for (const auto& [name, grad] : gradients(cast)) {
      const at::Tensor sent = grad.to(reduce_dtype).to(kFp32);
      sums[name] = r == 0 ? sent : sums[name] + sent;
    }
  }
  for (auto& [name, sum] : sums) sum = (sum / ranks).to(reduce_dtype).to(kFp32);
  return sums;
}

void expect_precision(const RankContext& rank,
                      const MixedPrecisionPolicy& policy,
                      at::ScalarType param_dtype,
                      at::ScalarType reduce_dtype) {
  Tower whole, net;
  FullyShardOptions options;
  options.mp_policy = policy;
  shard_blocks(net, mesh_of(rank), options);
  for (int step = 0; step < 3; ++step) {
    loss_of(net, inputs_of(rank.rank, step)).backward();
    const Tensors expected = expected_gradients(whole, rank.size, step, param_dtype, reduce_dtype);
    expect_gradients(net, expected);
    for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad() = expected.at(p.name);
    step_whole(whole);
    step_sharded(net);
    expect_values(net, values(whole));
  }
}

TEST(MixedPrecision, ComputeDtype) {
  for (const at::ScalarType dtype : {kBf16, kFp16}) {
    expect_ranks(2, [dtype](const RankContext& rank) {
      expect_precision(rank, {.param_dtype = dtype, .reduce_dtype = kFp32}, dtype, kFp32);
    });
  }
}

TEST(MixedPrecision, GradientsAreReducedInTheComputeTypeByDefault) {
  expect_ranks(3, [](const RankContext& rank) {
    expect_precision(rank, {.param_dtype = kBf16}, kBf16, kBf16);
    expect_precision(rank, {.param_dtype = kBf16, .reduce_dtype = kBf16}, kBf16, kBf16);
  });
}

TEST(MixedPrecision, ReduceDtypeBelowTheComputeType) {
  expect_ranks(2, [](const RankContext& rank) {
    expect_precision(rank, {.reduce_dtype = kBf16}, kFp32, kBf16);
  });
}

TEST(MixedPrecision, OneRankCastsAsMany) {
  expect_ranks(1, [](const RankContext& rank) {
    expect_precision(rank, {.param_dtype = kBf16, .reduce_dtype = kFp32}, kBf16, kFp32);
    expect_precision(rank, {.reduce_dtype = kBf16}, kFp32, kBf16);
  });
}

// Types are read at the first forward: a model that was cast meanwhile reduces in its own type.
TEST(MixedPrecision, AModelCastAfterwards) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = kBf16, .reduce_dtype = kBf16};
    shard_blocks(net, mesh_of(rank), options);
    const at::NoGradGuard no_grad;
    for (const auto& p : net.named_parameters())
      *p.tensor = p.tensor->detach().to(kBf16).requires_grad_();
    const at::AutoGradMode grad(true);
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    for (const auto& p : sharded_parameters(net)) {
      EXPECT_EQ(p.tensor.local.scalar_type(), kBf16);
      EXPECT_EQ(p.parameter.grad().scalar_type(), kBf16);
    }
  });
}

// Halves are divided before the sum, so that it does not overflow, and after it for the rest.
TEST(MixedPrecision, HalfIsDividedBeforeAndAfterTheSum) {
  const std::map<int, std::pair<double, double>> factors = {
      {2, {2, 1}}, {3, {2, 1.5}}, {4, {2, 2}}};
  for (const auto& [ranks, factor] : factors) {
    const auto [pre, post] = factor;
    const int size = ranks;
    expect_ranks(size, [=](const RankContext& rank) {
      Weights net({at::full({8, 2}, 1.0f).requires_grad_()});
      FullyShardOptions options;
      options.mp_policy.reduce_dtype = kFp16;
      fully_shard(net, mesh_of(rank), options);
      // mean((x S)^2) with S = 16 elements of 1 has the gradient 64 x^2. The sum is above 65504.
      const auto gradient = [](int r) { return 36000.0f * (1 - 0.1f * r); };
      loss_of(net, at::full({1}, std::sqrt(gradient(rank.rank) / 64))).backward();
      at::Tensor sum = at::zeros({1});
      for (int r = 0; r < size; ++r) sum += (at::full({1}, gradient(r)).to(kFp16) / pre).to(kFp32);
      const float expected = (sum.to(kFp16) / post).item<float>();
      const at::Tensor grad = sharded_parameters(net)[0].parameter.grad();
      ASSERT_TRUE(std::isfinite(expected));
      ASSERT_GT(grad.numel(), 0);
      // x is a rounded square root, which may move a gradient to the next fp16 number (2^-11).
      EXPECT_NEAR(grad.max().item<float>(), expected, expected / 1024);
      EXPECT_EQ(grad.min().item<float>(), grad.max().item<float>());
    });
  }
}

// Without a reduce_dtype gradients are kept in the types they come in, which one wire cannot hold.
TEST(MixedPrecision, TrainedParametersOfTwoTypesNeedAReduceDtype) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto make = [] {
      return std::vector<at::Tensor>{at::ones({4}).requires_grad_(),
                                     at::ones({3}, at::kBFloat16).requires_grad_()};
    };
    Weights refused(make()), net(make());
    const auto mesh = mesh_of(rank);
    fully_shard(refused, mesh);
    EXPECT_THAT(
        config_error([&] { loss_of(refused, at::ones({1})).backward(); }),
        AllOf(HasSubstr("Float (w0)"), HasSubstr("BFloat16 (w1)"), HasSubstr("reduce_dtype")));
    FullyShardOptions options;
    options.mp_policy.reduce_dtype = kFp32;
    fully_shard(net, mesh, options);
    loss_of(net, at::ones({1})).backward();
    for (const auto& p : sharded_parameters(net)) {
      EXPECT_EQ(p.parameter.grad().scalar_type(), p.parameter.scalar_type());
      // mean((x S)^2) with S = 7 elements of 1: 2 S * 2 w.
      EXPECT_TRUE(at::equal(p.parameter.grad(), at::full_like(p.parameter.grad(), 28.0f)));
    }
  });
}

TEST(MixedPrecision, ReduceDtypeAfterAFirstForwardWithFrozenParameters) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = kBf16, .reduce_dtype = kFp32};
    shard_blocks(net, mesh_of(rank), options);
    for (auto& p : sharded_parameters(net)) p.parameter.requires_grad_(false);
    EXPECT_FALSE(net(inputs_of(rank.rank, 0)).requires_grad());
    for (auto& p : sharded_parameters(net)) p.parameter.requires_grad_(true);
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    expect_gradients(net, expected_gradients(whole, rank.size, 0, kBf16, kFp32));
  });
}

// Several micro batches without sync are added in reduce_dtype.
TEST(MixedPrecision, MicroBatchesAreAddedInReduceDtype) {
  for (const at::ScalarType reduce : {kFp32, kBf16}) {
    expect_ranks(2, [reduce](const RankContext& rank) {
      Tower whole, net;
      FullyShardOptions options;
      options.mp_policy = {.param_dtype = kBf16, .reduce_dtype = reduce};
      shard_blocks(net, mesh_of(rank), options);
      constexpr int kMicroBatches = 4;
      for (int m = 0; m < kMicroBatches; ++m) {
        FsdpModule::of(net).set_requires_gradient_sync(m + 1 == kMicroBatches);
        loss_of(net, inputs_of(rank.rank, m)).backward();
      }
      Tensors sums;
      for (int r = 0; r < rank.size; ++r) {
        Tensors own;
        for (int m = 0; m < kMicroBatches; ++m) {
          Tower cast;
          cast_parameters(whole, cast, kBf16);
          loss_of(cast, inputs_of(r, m).to(kBf16)).backward();
          for (const auto& [name, grad] : gradients(cast)) {
            if (m == 0) {
              own[name] = grad.to(reduce);
            } else {
              own[name] += grad;
            }
          }
        }
        for (const auto& [name, grad] : own)
          sums[name] = r == 0 ? grad.to(kFp32) : sums[name] + grad.to(kFp32);
      }
      for (auto& [name, sum] : sums) sum = (sum / rank.size).to(reduce).to(kFp32);
      expect_gradients(net, sums);
    });
  }
}

// The gradients of both summands are views of one tensor: dividing one before it is sent must not
// reach the other.
class Flattened : public nn::Callable<Flattened> {
 public:
  Flattened() : weight(at::ones({2, 2}).requires_grad_()) { register_parameter("weight", weight); }
  at::Tensor forward(const at::Tensor& x) { return weight.view({4}) + x.view({4}); }
  at::Tensor weight;
};

TEST(MixedPrecision, GradientsThatShareMemoryAreNotDividedInPlace) {
  expect_ranks(2, [](const RankContext& rank) {
    Flattened net;
    const at::NoGradGuard no_grad;
    net.weight = at::ones({2, 2}, kFp16).requires_grad_();
    const at::AutoGradMode grad(true);
    fully_shard(net, mesh_of(rank));
    const at::Tensor x = at::ones({2, 2}, kFp16).requires_grad_();
    (net(x) * at::full({4}, 8, kFp16)).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::full({2, 2}, 8, kFp16)));
    EXPECT_TRUE(at::equal(sharded_parameters(net)[0].parameter.grad(), at::full({1, 2}, 8, kFp16)));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
