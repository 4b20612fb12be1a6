// What units cast on the way in and out, and what comes through the casts.
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

constexpr auto kFp32 = at::kFloat;
constexpr auto kBf16 = at::kBFloat16;
constexpr auto kFp16 = at::kHalf;

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

}  // namespace
}  // namespace shardloom::parallel::testing
