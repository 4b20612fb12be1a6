// Losses, gradients and weights against one process that runs the batches of all ranks.
#include <unistd.h>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

constexpr int kSteps = 4;

void expect_parity(const RankContext& rank,
                   const FullyShardOptions& options,
                   BackendKind backend = BackendKind::kShm,
                   double tolerance = 0) {
  Net whole, net;
  shard_blocks(net, mesh_of(rank, backend), options);
  for (int step = 0; step < kSteps; ++step) expect_same_step(whole, net, rank, step, tolerance);
}

TEST(Parity, BitEqualOnOneToFourRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    expect_ranks(ranks, [](const RankContext& rank) { expect_parity(rank, {}); });
}

TEST(Parity, BitEqualForEveryReshardAfterForward) {
  for (const bool reshard : {true, false}) {
    expect_ranks(3, [reshard](const RankContext& rank) {
      FullyShardOptions options;
      options.reshard_after_forward = reshard;
      expect_parity(rank, options);
    });
  }
}

TEST(Parity, BitEqualWhenGroupsOfTwoKeepTheParameters) {
  expect_ranks(4, [](const RankContext& rank) {
    Net whole, net;
    const auto world = world_of(rank);
    const auto mesh = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", world->group()}});
    for (auto& block : net.blocks) {
      FullyShardOptions options;
      options.reshard_after_forward = 2;
      options.world = world;
      fully_shard(*block, mesh, options);
    }
    fully_shard(net, mesh);
    for (int step = 0; step < kSteps; ++step) expect_same_step(whole, net, rank, step);
  });
}

TEST(Parity, GlooIsBitEqualOnTwoRanks) {
  expect_ranks(2, [](const RankContext& rank) { expect_parity(rank, {}, BackendKind::kGloo); });
}

// Gloo adds along a ring: other order of three summands, of gradients below 1 in magnitude.
TEST(Parity, GlooOnThreeRanks) {
  expect_ranks(3, [](const RankContext& rank) {
    expect_parity(rank, {}, BackendKind::kGloo, /*tolerance=*/2e-6);
  });
}

TEST(Parity, ShardsStayOnTheCpuWithOffload) {
  for (const bool pin_memory : {true, false}) {
    expect_ranks(2, [pin_memory](const RankContext& rank) {
      FullyShardOptions options;
      options.offload_policy = {.cpu = true, .pin_memory = pin_memory};
      expect_parity(rank, options);
    });
  }
}

TEST(Parity, OneUnitOfUnevenShapes) {
  for (const int ranks : {2, 3}) {
    expect_ranks(ranks, [](const RankContext& rank) {
      Net whole, net;
      fully_shard(net, mesh_of(rank));
      for (int step = 0; step < kSteps; ++step) expect_same_step(whole, net, rank, step);
    });
  }
}

// More ranks than rows: some hold nothing.
TEST(Parity, RanksWithoutRows) {
  expect_ranks(4, [](const RankContext& rank) {
    const auto make = [] {
      return std::vector<at::Tensor>{at::arange(1, 6, at::kFloat).requires_grad_(),
                                     at::arange(1, 4, at::kFloat).view({1, 3}).requires_grad_(),
                                     at::arange(1, 19, at::kFloat).view({9, 2}).requires_grad_()};
    };
    Weights whole(make()), net(make());
    fully_shard(net, mesh_of(rank));
    for (int step = 0; step < kSteps; ++step) {
      expect_same_step(whole, net, rank, step,
                       [](int r, int s) { return at::full({2}, 0.001 * (r + 2 * s + 1)); });
    }
  });
}

class Constant : public nn::Callable<Constant> {
 public:
  Constant() { register_module("tower", tower); }
  at::Tensor forward() { return tower(inputs); }
  at::Tensor inputs;
  Tower tower;
};
at::Tensor loss_of(Constant& net, const at::Tensor& inputs) {
  net.inputs = inputs;
  return net().pow(2).mean();
}

TEST(Parity, RootWithoutInputs) {
  expect_ranks(2, [](const RankContext& rank) {
    Constant whole, net;
    const auto mesh = mesh_of(rank);
    for (auto& block : net.tower.blocks) fully_shard(*block, mesh);
    fully_shard(net, mesh);
    for (int step = 0; step < kSteps; ++step) {
      expect_same_step(whole, net, rank, step, [](int r, int s) { return inputs_of(r, s); });
    }
  });
}

// A module whose method is not called forward.
class Encoder : public nn::Callable<Encoder> {
 public:
  Encoder() { register_module("block", block); }
  at::Tensor forward(const at::Tensor& x) { return block(x); }
  at::Tensor encode(const at::Tensor& x) {
    return call_wrapped([this](const at::Tensor& given) { return block(given) * 2; }, x);
  }
  Block block{5, 7};
};
at::Tensor loss_of(Encoder& net, const at::Tensor& inputs) {
  return net.encode(inputs).pow(2).mean() + net(inputs).mean();
}

TEST(Parity, OtherMethodsThanForward) {
  expect_ranks(2, [](const RankContext& rank) {
    Encoder whole, net;
    fill_parameters(whole);
    fill_parameters(net);
    const auto mesh = mesh_of(rank);
    fully_shard(net.block, mesh);
    fully_shard(net, mesh);
    for (int step = 0; step < kSteps; ++step) {
      expect_same_step(whole, net, rank, step, [](int r, int s) { return inputs_of(r, s); });
    }
  });
}

// Ranks that arrive late at each stage of the step.
TEST(Parity, SlowRanks) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    const auto dawdle = [&](int turn) {
      if (turn % 2 == rank.rank) ::usleep(20000);
    };
    FsdpModule::of(net).set_event_listener(
        [&, turn = 0](const UnitEvent&) mutable { dawdle(turn++ / 3); });
    for (int step = 0; step < kSteps; ++step) {
      dawdle(step);
      expect_same_step(whole, net, rank, step);
    }
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
