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

// x W, where it can be seen what comes in.
class Probe : public nn::Callable<Probe> {
 public:
  Probe() : linear(5, 5, true, at::TensorOptions().dtype(kFp32)) {
    register_module("linear", linear);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    seen_input = x.scalar_type();
    seen_weight = linear.weight.scalar_type();
    return linear(x.to(linear.weight.scalar_type()));
  }
  nn::Linear linear;
  at::ScalarType seen_input = at::kByte, seen_weight = at::kByte;
};

TEST(MixedPrecision, CastForwardInputs) {
  for (const bool cast : {true, false}) {
    expect_ranks(2, [cast](const RankContext& rank) {
      Probe net;
      FullyShardOptions options;
      options.mp_policy = {.param_dtype = kBf16, .cast_forward_inputs = cast};
      fully_shard(net, mesh_of(rank), options);
      EXPECT_EQ(net(inputs_of(0, 0)).scalar_type(), kBf16);
      EXPECT_EQ(net.seen_input, cast ? kBf16 : kFp32);
      EXPECT_EQ(net.seen_weight, kBf16);
      EXPECT_EQ(net.linear.weight.scalar_type(), kBf16);  // the root stays gathered
      EXPECT_EQ(sharded_parameters(net)[0].tensor.local.scalar_type(), kFp32);
      net(at::ones({2, 5}, at::kLong));
      EXPECT_EQ(net.seen_input, at::kLong);  // only floating inputs are cast
    });
  }
}

TEST(MixedPrecision, OutputDtypeOfTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = kBf16, .reduce_dtype = kFp32};
    const auto mesh = mesh_of(rank);
    for (auto& block : net.blocks) fully_shard(*block, mesh, options);
    options.mp_policy.output_dtype = kFp32;
    fully_shard(net, mesh, options);
    const at::Tensor out = net(inputs_of(rank.rank, 0));
    EXPECT_EQ(out.scalar_type(), kFp32);
    EXPECT_EQ(net.blocks[0](inputs_of(0, 0)).scalar_type(), kBf16);
    // The cast stands behind the unit's output: backward gathers and reduces as ever.
    out.sum().backward();
    for (const auto& p : sharded_parameters(net)) EXPECT_TRUE(p.parameter.grad().defined());
  });
}

TEST(MixedPrecision, OneUnitInHalfAmongOthers) {
  expect_ranks(2, [](const RankContext& rank) {
    class Pair : public nn::Callable<Pair> {
     public:
      Pair() {
        register_module("first", first);
        register_module("second", second);
      }
      at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
      Probe first, second;
    };
    Pair net;
    const auto mesh = mesh_of(rank);
    FullyShardOptions half, full;
    half.mp_policy = {.param_dtype = kFp16, .reduce_dtype = kFp32, .output_dtype = kFp32};
    fully_shard(net.second, mesh, half);
    fully_shard(net, mesh);
    const at::Tensor out = net(inputs_of(rank.rank, 0));
    out.sum().backward();
    EXPECT_EQ(net.first.seen_weight, kFp32);
    EXPECT_EQ(net.second.seen_weight, kFp16);
    EXPECT_EQ(net.second.seen_input, kFp16);
    EXPECT_EQ(out.scalar_type(), kFp32);
    for (const auto& p : sharded_parameters(net))
      EXPECT_EQ(p.parameter.grad().scalar_type(), kFp32);
  });
}

// A unit that also gets a tensor from outside the model, in fp32.
class Masked : public nn::Callable<Masked> {
 public:
  Masked() { register_module("inner", inner); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) { return inner(x, mask); }
  class Inner : public nn::Callable<Inner> {
   public:
    Inner() : linear(5, 5, true, at::TensorOptions().dtype(kFp32)) {
      register_module("linear", linear);
      fill_parameters(*this);
    }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
      seen_mask = mask.scalar_type();
      return linear(x) * mask;
    }
    nn::Linear linear;
    at::ScalarType seen_mask = at::kByte;
  };
  Inner inner;
};

TEST(MixedPrecision, InputsOfInnerUnitsFromOutside) {
  expect_ranks(2, [](const RankContext& rank) {
    Masked net;
    const auto mesh = mesh_of(rank);
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = kBf16, .reduce_dtype = kFp32};
    fully_shard(net.inner, mesh, options);
    fully_shard(net, mesh, {});
    const at::Tensor mask = at::ones({4, 1}).requires_grad_();
    const at::Tensor out = net(inputs_of(rank.rank, 0), mask);
    EXPECT_EQ(net.inner.seen_mask, kBf16);
    EXPECT_EQ(out.scalar_type(), kBf16);
    out.sum().backward();
    EXPECT_EQ(mask.grad().scalar_type(), kFp32);
    EXPECT_TRUE(sharded_parameters(net)[0].parameter.grad().defined());
  });
}

class Norms : public nn::Callable<Norms> {
 public:
  Norms() : layer(5, 1e-6, options()), rms(5, 1e-6, options()) {
    register_module("layer", layer);
    register_module("rms", rms);
    fill_parameters(*this);
  }
  static at::TensorOptions options() { return at::TensorOptions().dtype(kFp32); }
  at::Tensor forward(const at::Tensor& x) { return rms(layer(x)); }
  nn::LayerNorm layer;
  nn::RmsNorm rms;
};

TEST(MixedPrecision, NormsInLowPrecision) {
  for (const at::ScalarType dtype : {kBf16, kFp16}) {
    expect_ranks(2, [dtype](const RankContext& rank) {
      Norms net;
      FullyShardOptions options;
      options.mp_policy = {.param_dtype = dtype, .reduce_dtype = kFp32};
      const auto mesh = mesh_of(rank);
      fully_shard(net.layer, mesh, options);
      fully_shard(net.rms, mesh, options);
      fully_shard(net, mesh, options);
      const at::Tensor out = net(inputs_of(rank.rank, 0));
      EXPECT_EQ(out.scalar_type(), dtype);
      out.pow(2).sum().backward();
      for (const auto& p : sharded_parameters(net)) {
        EXPECT_TRUE(at::isfinite(p.parameter.grad()).all().item<bool>());
        if (p.parameter.numel() > 0) {
          EXPECT_GT(p.parameter.grad().abs().max().item<float>(), 0) << p.tensor.name;
        }
      }
    });
  }
}

// Tensors inside a struct, an optional, a list and a tuple are cast and watched.
struct Batch {
  at::Tensor x;
  std::optional<at::Tensor> scale;
  int note = 0;
  template <typename F>
  void visit_tensors(F&& f) {
    nn::visit_tensors(x, f);
    nn::visit_tensors(scale, f);
  }
};

class Structured : public nn::Callable<Structured> {
 public:
  Structured() { register_module("inner", inner); }
  Batch forward(const Batch& batch) {
    const auto [list, more] = inner(batch, std::vector<at::Tensor>{batch.x});
    return {list[0] + list[1], more, batch.note};
  }
  class Inner : public nn::Callable<Inner> {
   public:
    Inner() : linear(5, 5, true, at::TensorOptions().dtype(kFp32)) {
      register_module("linear", linear);
      fill_parameters(*this);
    }
    std::tuple<std::vector<at::Tensor>, at::Tensor> forward(const Batch& batch,
                                                            const std::vector<at::Tensor>& more) {
      seen = {batch.x.scalar_type(), batch.scale->scalar_type(), more[0].scalar_type()};
      const at::Tensor y = linear(batch.x) * *batch.scale;
      return {{y, linear(more[0])}, y * 2};
    }
    nn::Linear linear;
    std::vector<at::ScalarType> seen;
  };
  Inner inner;
};

TEST(MixedPrecision, StructuredInputsAndOutputs) {
  for (const at::ScalarType dtype : {kFp32, kBf16}) {
    expect_ranks(2, [dtype](const RankContext& rank) {
      Structured whole, net;
      const auto mesh = mesh_of(rank);
      FullyShardOptions options;
      options.mp_policy = {.param_dtype = dtype, .reduce_dtype = kFp32, .output_dtype = kFp32};
      fully_shard(net.inner, mesh, options);
      fully_shard(net, mesh);
      const auto loss = [](Structured& module, int r) {
        const Batch out = module(Batch{inputs_of(r, 0).requires_grad_(), at::full({1}, 0.5f), 7});
        EXPECT_EQ(out.note, 7);
        return out.x.pow(2).mean() + out.scale->sum();
      };
      EventRecorder events(net);
      loss(net, rank.rank).backward();
      EXPECT_EQ(net.inner.seen, std::vector<at::ScalarType>(3, dtype));
      EXPECT_EQ(events.take(), (std::vector<std::string>{"AG inner", "AG inner", "RS inner"}));
      if (dtype != kFp32) return;
      for (int r = 0; r < 2; ++r) loss(whole, r).backward();
      for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad().div_(2);
      expect_gradients(net, gradients(whole));
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
