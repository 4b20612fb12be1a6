// What fully_shard makes of a module: which parameters a unit takes, how they are cut, and what is
// refused.
#include <gmock/gmock.h>

#include "shardloom/base/error.h"
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor ramp(std::vector<int64_t> shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return at::arange(1, numel + 1, at::kFloat).view(shape).requires_grad_();
}

const ShardedParameter* find(const std::vector<ShardedParameter>& all, const std::string& name) {
  for (const auto& p : all) {
    if (p.tensor.name == name) return &p;
  }
  return nullptr;
}

TEST(Init, ShardsAreTheChunksOfTorchWithZeroPadding) {
  expect_ranks(4, [](const RankContext& rank) {
    // Memory that nobody fills holds NaN.
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    const std::vector<std::vector<int64_t>> shapes = {{1}, {5}, {8, 3}, {7, 2, 3}, {9, 1, 2, 2}};
    std::vector<at::Tensor> values;
    for (const auto& shape : shapes) values.push_back(ramp(shape));
    Weights net(values);
    fully_shard(net, mesh_of(rank));
    const auto params = sharded_parameters(net);
    ASSERT_EQ(params.size(), shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& p = params[i];
      EXPECT_EQ(p.tensor.shape, shapes[i]);
      const auto chunks = values[i].detach().chunk(4, 0);
      std::vector<int64_t> local_shape = shapes[i];
      const bool has_rows = static_cast<size_t>(rank.rank) < chunks.size();
      local_shape[0] = has_rows ? chunks[rank.rank].size(0) : 0;
      ASSERT_EQ(p.tensor.local.sizes(), at::IntArrayRef(local_shape)) << p.tensor.name;
      if (has_rows) {
        EXPECT_TRUE(same_bits(p.tensor.local, chunks[rank.rank])) << p.tensor.name;
      }
      // ceil(rows / 4) rows on every rank, the rest of them zero.
      const int64_t padded = (shapes[i][0] + 3) / 4 * (values[i].numel() / shapes[i][0]);
      EXPECT_EQ(p.tensor.local.storage().nbytes(), padded * sizeof(float)) << p.tensor.name;
      const at::Tensor flat = p.tensor.local.as_strided({padded}, {1}, 0);
      EXPECT_EQ(flat.narrow(0, p.tensor.local.numel(), padded - p.tensor.local.numel())
                    .count_nonzero()
                    .item<int64_t>(),
                0);
      EXPECT_TRUE(net.w[i].is_same(p.parameter));
      EXPECT_TRUE(p.parameter.is_leaf() && p.parameter.requires_grad());
    }
  });
}

TEST(Init, WholeParametersAreGoneAfterTheCall) {
  expect_ranks(2, [](const RankContext& rank) {
    auto net = std::make_unique<Weights>(std::vector<at::Tensor>{ramp({6, 2})});
    const auto storage = net->w[0].storage().getWeakStorageImpl();
    fully_shard(*net, mesh_of(rank));
    EXPECT_TRUE(storage.expired());
  });
}

// Elements that each unit gathers in one forward, by unit.
std::map<std::string, int64_t> gathered_numel(nn::Module& root,
                                              const std::function<void()>& forward) {
  std::map<std::string, int64_t> numel;
  FsdpModule::of(root).set_event_listener([&](const UnitEvent& e) {
    if (e.action == UnitAction::kAllGather) numel[e.unit] += e.numel;
  });
  const at::NoGradGuard no_grad;
  forward();
  FsdpModule::of(root).set_event_listener(nullptr);
  return numel;
}

int64_t padded_shard(nn::Module& module, int ranks) {
  int64_t sum = 0;
  for (const auto& p : module.named_parameters()) {
    const auto shape = p.tensor->sizes();
    sum += (shape[0] + ranks - 1) / ranks * (p.tensor->numel() / shape[0]);
  }
  return sum;
}

TEST(Init, ParentsTakeWhatTheirChildrenLeft) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    shard_blocks(net, mesh_of(rank));
    const auto numel = gathered_numel(net, [&] { net(ids_of(0, 0)); });
    const int64_t block = padded_shard(whole.blocks[0], 2);
    EXPECT_EQ(numel, (std::map<std::string, int64_t>{
                         {"(root)", padded_shard(whole.embed, 2) + padded_shard(whole.head, 2)},
                         {"blocks.0", block},
                         {"blocks.1", block},
                         {"blocks.2", block}}));
    EXPECT_EQ(FsdpModule::of(net.blocks[1]).unit_name(), "blocks.1");
    EXPECT_EQ(FsdpModule::of(net).unit_name(), "(root)");
  });
}

TEST(Init, ChildrenComeBeforeTheirParents) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    const auto mesh = mesh_of(rank);
    fully_shard(net, mesh);
    FullyShardOptions options;
    options.name = "blocks.0";
    EXPECT_THAT(config_error([&] { fully_shard(net.blocks[0], mesh, options); }),
                AllOf(HasSubstr("blocks.0.norm.weight"), HasSubstr("children before")));
    const auto numel = gathered_numel(net, [&] { net(inputs_of(0, 0)); });
    EXPECT_EQ(numel, (std::map<std::string, int64_t>{{"(root)", padded_shard(whole, 2)}}));
    for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step);
  });
}

// The same block under two names.
class Twin : public nn::Callable<Twin> {
 public:
  Twin() {
    register_module("first", block);
    register_module("second", block);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return block(block(x)); }
  Block block{5, 7};
};

TEST(Init, ASharedModuleIsOneUnit) {
  expect_ranks(2, [](const RankContext& rank) {
    Twin net;
    const int64_t expected = padded_shard(net.block, 2);
    const auto mesh = mesh_of(rank);
    fully_shard(net.block, mesh);
    fully_shard(net, mesh);
    const auto numel = gathered_numel(net, [&] { net(inputs_of(0, 0)); });
    ASSERT_EQ(numel.size(), 1u);
    EXPECT_EQ(numel.begin()->second, 2 * expected);  // gathered for each of the two calls
    EXPECT_EQ(sharded_parameters(net).size(), 5u);
  });
}

TEST(Init, IgnoredParametersStayWholeInPlaceAndUnreduced) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    const at::Tensor kept = net.head.weight;
    FullyShardOptions options;
    options.ignored_params = {&net.head.weight};
    shard_blocks(net, mesh_of(rank), options);
    EXPECT_TRUE(net.head.weight.is_same(kept));
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    loss_of(whole, inputs_of(rank.rank, 0)).backward();  // this rank's batch alone
    EXPECT_TRUE(net.head.weight.is_same(kept));
    EXPECT_TRUE(same_bits(kept.grad(), whole.head.weight.grad()));
    const auto params = sharded_parameters(net);
    const auto* p = find(params, "head.weight");
    ASSERT_NE(p, nullptr);
    EXPECT_FALSE(p->is_sharded);
    EXPECT_EQ(p->mesh, nullptr);
    EXPECT_EQ(p->tensor.local.sizes(), kept.sizes());
    EXPECT_TRUE(find(params, "head.bias")->is_sharded);
  });
}

TEST(Init, MeshMadeFromGroupsThatExist) {
  expect_ranks(4, [](const RankContext& rank) {
    const auto world = world_of(rank);
    const int first = rank.rank / 2 * 2;
    const auto shard = world->make_group("s", {first, first + 1});
    const auto replicate = world->make_group("r", {rank.rank % 2, rank.rank % 2 + 2});
    const auto flat = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", world->group()}});
    const auto grid = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_replicate", replicate}, {"dp_shard", shard}});
    for (const auto& mesh : {flat, grid}) {
      Tower whole, net;
      shard_blocks(net, mesh);
      // Sums of pairs are added where the reference adds one by one: the last bit of gradients
      // below 4 in magnitude.
      const double tolerance = mesh == grid ? 1e-6 : 0;
      for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step, tolerance);
    }
  });
}

TEST(Init, WhatIsRefused) {
  expect_ranks(1, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    const auto refuse = [&](nn::Module& module, const std::string& name = "") {
      FullyShardOptions options;
      options.name = name;
      return config_error([&] { fully_shard(module, mesh, options); });
    };
    Weights scalar({at::ones({})});
    EXPECT_THAT(refuse(scalar, "scale"), AllOf(HasSubstr("scale.w0"), HasSubstr("1-D tensor")));
    Weights strided({at::ones({4, 6}).t()});
    EXPECT_THAT(refuse(strided), AllOf(HasSubstr("w0"), HasSubstr("not contiguous")));
    Tower tower;
    EXPECT_THAT(refuse(tower.blocks, "blocks"),
                AllOf(HasSubstr("blocks"), HasSubstr("does not implement forward")));
    fully_shard(tower.head, mesh);
    EXPECT_THAT(refuse(tower.head, "head"), AllOf(HasSubstr("head"), HasSubstr("sharded already")));
    EXPECT_THAT(config_error([&] {
                  fully_shard({&tower.blocks[0], &tower.blocks[1], &tower.blocks[0]}, mesh);
                }),
                HasSubstr("twice"));
    EXPECT_THAT(config_error([&] { fully_shard(std::vector<nn::Module*>{}, mesh); }),
                HasSubstr("empty"));
    EXPECT_THAT(config_error([] {
                  Tower plain;
                  FsdpModule::of(plain);
                }),
                HasSubstr("not sharded"));
  });
}

TEST(Init, MeshesOfOneOrTwoAxesOnly) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    EXPECT_THAT(config_error([&] { fully_shard(net, nullptr); }), HasSubstr("one axis"));
    const auto mesh = std::make_shared<const DeviceMesh>(
        *world_of(rank), std::vector<std::pair<std::string, int>>{{"a", 1}, {"b", 1}, {"c", 2}});
    EXPECT_THAT(config_error([&] { fully_shard(net, mesh); }), HasSubstr("a 1 x b 1 x c 2"));
    EXPECT_FALSE(FsdpModule::is_sharded(net));
  });
}

TEST(Init, ReshardGroupsMustDivideTheShardSize) {
  expect_ranks(4, [](const RankContext& rank) {
    const auto world = world_of(rank);
    const auto mesh = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", world->group()}});
    FullyShardOptions options;
    for (const int size : {0, -2, 3, 8}) {
      Tower net;
      options.world = world;
      options.reshard_after_forward = size;
      EXPECT_THAT(config_error([&] { fully_shard(net, mesh, options); }),
                  HasSubstr(fmt::format("reshard_after_forward is {}", size)));
    }
    Tower net;
    options.world = nullptr;
    options.reshard_after_forward = 2;
    EXPECT_THAT(config_error([&] { fully_shard(net, mesh, options); }), HasSubstr("world"));
  });
}

TEST(Init, TheModuleThatRunsFirstIsTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    shard_blocks(net, mesh_of(rank));
    net.blocks[1](inputs_of(0, 0));
    EXPECT_THAT(config_error([&] { net(inputs_of(0, 0)); }),
                AllOf(HasSubstr("blocks.1"), HasSubstr("ran forward by itself")));
  });
}

TEST(Init, AListOfModulesCannotBeTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    fully_shard({&net.blocks[0], &net.blocks[1]}, mesh_of(rank));
    EXPECT_THAT(config_error([&] { net.blocks[0](inputs_of(0, 0)); }),
                HasSubstr("list of 2 modules ran forward before the root"));
  });
}

void convert(nn::Module& module, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  for (const auto& p : module.named_parameters())
    *p.tensor = p.tensor->detach().to(dtype).requires_grad_();
}

TEST(Init, ParametersReplacedBeforeTheFirstForward) {
  expect_ranks(3, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    convert(whole, at::kDouble);
    convert(net, at::kDouble);
    for (int step = 0; step < 10; ++step) {
      expect_same_step(whole, net, rank, step,
                       [](int r, int s) { return inputs_of(r, s).to(at::kDouble); });
    }
    for (const auto& p : sharded_parameters(net)) {
      EXPECT_EQ(p.tensor.local.scalar_type(), at::kDouble);
      EXPECT_TRUE(p.parameter.grad().defined() == false);
    }
  });
}

TEST(Init, AReplacementOfAnotherShapeIsRefused) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    shard_blocks(net, mesh_of(rank));
    net.head.bias = at::zeros({5});
    EXPECT_THAT(config_error([&] { net(inputs_of(0, 0)); }),
                AllOf(HasSubstr("head.bias"), HasSubstr("another shape")));
  });
}

// Parameters "w0" ... and a buffer, with forward of Weights.
std::vector<at::Tensor> ramps(c10::Device device) {
  std::vector<at::Tensor> out;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{8, 2}, {5, 3}, {1, 4}}) {
    at::Tensor value = ramp(shape).detach();
    if (device.is_meta()) value = at::empty(shape, at::TensorOptions().device(device));
    out.push_back(value.to(at::kFloat).requires_grad_());
  }
  return out;
}

class Normalized : public Weights {
 public:
  explicit Normalized(c10::Device device)
      : Weights(ramps(device)), scale(at::ones({3}, at::TensorOptions().device(device))) {
    register_buffer("scale", scale);
  }
  at::Tensor scale;
};

void expect_meta_equals_normal(const RankContext& rank,
                               const std::shared_ptr<const DeviceMesh>& mesh,
                               const FullyShardOptions& options) {
  // Memory that nobody fills holds NaN, the padding of materialized shards among it.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  Normalized normal(at::kCPU), meta(at::kMeta);
  fully_shard(normal, mesh, options);
  fully_shard(meta, mesh, options);
  EXPECT_TRUE(meta.w[0].is_meta());
  materialize(meta, at::kCPU);
  EXPECT_TRUE(meta.scale.is_cpu());
  const at::NoGradGuard no_grad;
  const auto values = ramps(at::kCPU);
  const auto params = sharded_parameters(meta);
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& tensor = params[i].tensor;
    tensor.local.copy_(values[i].narrow(0, tensor.first_row, tensor.local.size(0)));
  }
  const at::Tensor x = at::full({2}, 0.01 * (rank.rank + 1));
  {
    const at::AutoGradMode grad(true);
    loss_of(normal, x).backward();
    loss_of(meta, x).backward();
  }
  const auto expected = sharded_parameters(normal);
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_TRUE(same_bits(params[i].parameter, expected[i].parameter));
    const at::Tensor& local = params[i].tensor.local;
    const auto stored = static_cast<int64_t>(local.storage().nbytes() / sizeof(float));
    EXPECT_TRUE(at::isfinite(local.as_strided({stored}, {1}, 0)).all().item<bool>());
    EXPECT_TRUE(same_bits(params[i].parameter.grad(), expected[i].parameter.grad()));
  }
}

TEST(Init, MetaDeviceEqualsNormalInit) {
  for (const bool low_precision : {false, true}) {
    FullyShardOptions options;
    if (low_precision)
      options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    expect_ranks(4, [&](const RankContext& rank) {
      expect_meta_equals_normal(rank, mesh_of(rank), options);
    });
    expect_ranks(4, [&](const RankContext& rank) {
      expect_meta_equals_normal(rank, hsdp_mesh_of(rank, 2), options);
    });
  }
}

// Rank 0 alone has values; the others get theirs from it.
TEST(Init, MetaDeviceFilledFromRankZero) {
  expect_ranks(3, [](const RankContext& rank) {
    Normalized whole(at::kCPU), net(at::kMeta);
    const auto mesh = mesh_of(rank);
    fully_shard(net, mesh);
    materialize(net, at::kCPU);
    {
      const at::NoGradGuard no_grad;
      for (const auto& p : sharded_parameters(net)) {
        at::Tensor full = at::full(p.tensor.shape, -1.0f);
        if (rank.rank == 0) full = values(whole).at(p.tensor.name).clone();
        mesh->axis(0).group->broadcast(full, 0).wait();
        p.tensor.local.copy_(full.narrow(0, p.tensor.first_row, p.tensor.local.size(0)));
      }
    }
    for (int step = 0; step < 2; ++step) {
      expect_same_step(whole, net, rank, step,
                       [](int r, int s) { return at::full({2}, 0.001 * (r + s + 1)); });
    }
  });
}

TEST(Init, ParametersLeftOnTheMetaDeviceAreNamed) {
  expect_ranks(2, [](const RankContext& rank) {
    Normalized net(at::kMeta);
    fully_shard(net, mesh_of(rank));
    const auto forward = [&] { net(at::ones({2})); };
    EXPECT_THAT(config_error(forward), AllOf(HasSubstr("w0, w1, w2"), HasSubstr("materialize")));
    // Values that were loaded into the members do as well as materialize().
    const at::NoGradGuard no_grad;
    for (at::Tensor& w : net.w) w = at::ones(w.sizes());
    for (const auto& p : sharded_parameters(net)) EXPECT_TRUE(p.tensor.local.is_cpu());
    EXPECT_FLOAT_EQ(net(at::ones({2}))[0].item<float>(), 16 + 15 + 4);
  });
}

TEST(Init, OnlyTheParametersStillOnTheMetaDeviceAreNamed) {
  expect_ranks(2, [](const RankContext& rank) {
    Normalized net(at::kMeta);
    fully_shard(net, mesh_of(rank));
    const at::NoGradGuard no_grad;
    net.w[0] = at::ones(net.w[0].sizes());
    const std::string error = config_error([&] { net(at::ones({2})); });
    EXPECT_THAT(error, HasSubstr("w1, w2"));
    EXPECT_THAT(error, ::testing::Not(HasSubstr("w0")));
    EXPECT_EQ(sharded_parameters(net).size(), 3u);  // listing them needs no memory
  });
}

TEST(Init, ModulesAreNotCopied) {
  static_assert(!std::is_copy_constructible_v<Tower> && !std::is_move_constructible_v<Tower>);
}

}  // namespace
}  // namespace shardloom::parallel::testing
