// Parameters as optimizers and checkpoints see them.
#include <gmock/gmock.h>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

std::vector<std::string> names(const std::vector<ShardedParameter>& params) {
  std::vector<std::string> out;
  for (const auto& p : params) out.push_back(p.tensor.name);
  return out;
}

TEST(State, NamesAndOrderAreThoseOfThePlainModule) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    shard_blocks(net, mesh_of(rank));
    std::vector<std::string> plain;
    for (const auto& p : whole.named_parameters()) plain.push_back(p.name);
    EXPECT_EQ(names(sharded_parameters(net)), plain);
    loss_of(net, ids_of(0, 0));  // the root is gathered now
    EXPECT_EQ(names(sharded_parameters(net)), plain);
    EXPECT_EQ(names(sharded_parameters(net.blocks[1]))[0], "norm.weight");
  });
}

// Shards of any unit state give the whole tensor back, for all numbers of dims.
TEST(State, GatheringTheShardsGivesTheWhole) {
  for (const int replicas : {0, 2}) {
    expect_ranks(4, [replicas](const RankContext& rank) {
      const std::vector<std::vector<int64_t>> shapes = {
          {7}, {5, 2}, {4, 2, 3}, {3, 2, 1, 2}, {9, 1, 2, 1, 2}};
      std::vector<at::Tensor> values;
      for (const auto& shape : shapes) {
        int64_t numel = 1;
        for (const int64_t size : shape) numel *= size;
        values.push_back(at::arange(1, numel + 1, at::kFloat).view(shape).requires_grad_());
      }
      Weights net(values);
      fully_shard(net, replicas == 0 ? mesh_of(rank) : hsdp_mesh_of(rank, replicas));
      for (const bool gathered : {false, true}) {
        if (gathered) net(at::ones({1}));
        const auto params = sharded_parameters(net);
        for (size_t i = 0; i < params.size(); ++i) {
          const auto& tensor = params[i].tensor;
          EXPECT_TRUE(
              same_bits(distributed::gather_rows(tensor, 0, tensor.shape[0]), values[i].detach()));
          EXPECT_EQ(params[i].mesh->num_axes(), replicas == 0 ? 1 : 2);
        }
      }
    });
  }
}

TEST(State, LocalTensorsShareTheMemoryOfTheShards) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    fill_parameters(net, /*seed=*/5);
    shard_blocks(net, mesh_of(rank));
    const auto before = sharded_parameters(net);
    {
      // As a checkpoint is loaded.
      const at::NoGradGuard no_grad;
      const Tensors saved = values(whole);
      for (const auto& p : before) {
        const at::Tensor& from = saved.at(p.tensor.name);
        p.tensor.local.copy_(from.narrow(0, p.tensor.first_row, p.tensor.local.size(0)));
      }
    }
    for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step);
    expect_values(net, values(whole));
    for (const auto& p : before) {
      EXPECT_EQ(p.tensor.local.data_ptr(), p.parameter.data_ptr());
    }
  });
}

// An optimizer made before the first forward holds the right tensors for ever.
TEST(State, LeavesStayTheSame) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    auto held = sharded_parameters(net);
    for (int step = 0; step < 3; ++step) {
      run_serially(whole, rank.size, step, [](int r, int s) { return inputs_of(r, s); });
      loss_of(net, inputs_of(rank.rank, step)).backward();
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      const at::NoGradGuard no_grad;
      for (auto& p : held) {
        ASSERT_TRUE(p.parameter.is_leaf());
        p.tensor.local.sub_(p.parameter.grad() * 0.05);
        p.parameter.mutable_grad().reset();
      }
    }
    expect_values(net, values(whole));
    const auto now = sharded_parameters(net);
    for (size_t i = 0; i < held.size(); ++i)
      EXPECT_TRUE(now[i].parameter.is_same(held[i].parameter));
  });
}

TEST(State, HandlesOfOneModuleAreTheSame) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.name = "tower.blocks.0";
    EXPECT_FALSE(FsdpModule::is_sharded(net.blocks[0]));
    fully_shard(net.blocks[0], mesh_of(rank), options);
    EXPECT_TRUE(FsdpModule::is_sharded(net.blocks[0]));
    EXPECT_FALSE(FsdpModule::is_sharded(net));
    EXPECT_EQ(FsdpModule::of(net.blocks[0]).unit_name(), "tower.blocks.0");
  });
}

// After the root has run, a unit may run alone, also with gradients.
TEST(State, AUnitAloneAfterTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    for (int step = 0; step < 3; ++step) {
      expect_same_step(whole, net, rank, step);
      for (int r = 0; r < rank.size; ++r) whole.blocks[1](inputs_of(r, step)).mean().backward();
      net.blocks[1](inputs_of(rank.rank, step)).mean().backward();
      for (const auto& p : whole.named_parameters()) {
        if (p.tensor->grad().defined()) p.tensor->mutable_grad().div_(rank.size);
      }
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      step_sharded(net);
    }
  });
}

// Two units on meshes of different sizes in one model.
TEST(State, UnitsOnDifferentMeshes) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower whole, net;
    const auto grid = hsdp_mesh_of(rank, 2);
    fully_shard(net.blocks[0], grid);
    fully_shard(net.blocks[1], mesh_of(rank));
    fully_shard(net, grid);
    EventRecorder events(net);
    // Sums of pairs are added on the grid, one by one in the reference: the last bits of gradients
    // below 4 in magnitude.
    for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step, 1e-6);
    EXPECT_EQ(events.count("AR"), 2 * 2);
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
