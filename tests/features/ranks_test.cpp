// With fully_shard around, below and inside of recomputed and offloaded modules, on two processes.
#include "shardloom/features/apply.h"
#include "tests/features/nets.h"
#include "tests/parallel/nets.h"

namespace shardloom::features {
namespace {

using namespace parallel::testing;
using parallel::fully_shard;
using parallel::FullyShardOptions;

constexpr int kSteps = 3;

FeaturePlan plan_of(RecomputeMode mode, bool offloads) {
  FeaturePlan plan{.recompute = {"blocks.0", "blocks.1", "blocks.2"}, .recompute_mode = mode};
  if (offloads) plan.offload = plan.recompute;
  return plan;
}

// Every mode, without and with offload.
void for_each_plan(const std::function<void(const FeaturePlan&)>& body) {
  for (const RecomputeMode mode : {RecomputeMode::kSavedTensors, RecomputeMode::kReentrant}) {
    for (const bool offloads : {false, true}) body(plan_of(mode, offloads));
  }
}

TEST(FeaturesOnRanks, InsideOfUnits) {
  for (const bool reshard : {true, false}) {
    expect_ranks(2, [reshard](const RankContext& rank) {
      const auto mesh = mesh_of(rank);
      for_each_plan([&](const FeaturePlan& plan) {
        Net whole, net;
        apply(net, plan);
        FullyShardOptions options;
        options.reshard_after_forward = reshard;
        shard_blocks(net, mesh, options);
        for (int step = 0; step < kSteps; ++step) expect_same_step(whole, net, rank, step);
      });
    });
  }
}

TEST(FeaturesOnRanks, AroundUnits) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    for_each_plan([&](const FeaturePlan& plan) {
      Net whole, net;
      apply(net, plan);
      for (auto& block : net.blocks) {
        fully_shard(block->up, mesh);
        fully_shard(block->down, mesh);
      }
      fully_shard(net, mesh);
      for (int step = 0; step < kSteps; ++step) expect_same_step(whole, net, rank, step);
    });
  });
}

TEST(FeaturesOnRanks, AroundAUnitInsideOfAUnit) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    for_each_plan([&](const FeaturePlan& plan) {
      Net whole, net;
      apply(net, plan);
      for (auto& block : net.blocks) {
        fully_shard(block->up, mesh);
        fully_shard(*block, mesh);
      }
      fully_shard(net, mesh);
      for (int step = 0; step < kSteps; ++step) expect_same_step(whole, net, rank, step);
    });
  });
}

// The casts of a unit's inputs lie around the recomputed part: bf16 values, the same in both runs.
TEST(FeaturesOnRanks, MixedPrecisionIsThatWithout) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    for_each_plan([&](const FeaturePlan& plan) {
      Net off, on;
      apply(on, plan);
      shard_blocks(off, mesh, options);
      shard_blocks(on, mesh, options);
      for (int step = 0; step < kSteps; ++step) {
        for (Net* net : {&off, &on}) loss_of(*net, ids_of(rank.rank, step)).backward();
        const auto expected = parallel::sharded_parameters(off),
                   actual = parallel::sharded_parameters(on);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(same_bits(actual[i].parameter.grad(), expected[i].parameter.grad()))
              << expected[i].tensor.name;
        }
        for (Net* net : {&off, &on}) step_sharded(*net);
      }
    });
  });
}

// Gradients of micro batches before the last stay where they are while a later one recomputes.
TEST(FeaturesOnRanks, AccumulatedMicroBatches) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    Net off, on;
    apply(on, plan_of(RecomputeMode::kSavedTensors, /*offloads=*/true));
    for (Net* net : {&off, &on}) {
      for (auto& block : net->blocks) fully_shard(block->up, mesh);
      fully_shard(*net, mesh);
      const auto control = parallel::FsdpModule::of(*net);
      for (int micro = 0; micro < 3; ++micro) {
        parallel::FsdpModule(control).set_is_last_backward(micro == 2);
        parallel::FsdpModule(control).set_requires_gradient_sync(micro == 2);
        loss_of(*net, ids_of(rank.rank, micro)).backward();
      }
    }
    const auto expected = parallel::sharded_parameters(off),
               actual = parallel::sharded_parameters(on);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(actual[i].parameter.grad(), expected[i].parameter.grad()))
          << expected[i].tensor.name;
    }
  });
}

// The weight is gathered around the call that makes the loss, and backward needs it no more: the
// gradients wait in the graph.
TEST(FeaturesOnRanks, ChunkLossInAUnit) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    testing::Net whole, net;
    for (testing::Net* each : {&whole, &net}) apply(*each, {.chunk_loss = "head", .chunk_rows = 7});
    fully_shard(net.head, mesh).set_unshard_in_backward(false);
    fully_shard(net, mesh);
    const auto step = [](testing::Net& each) {
      at::manual_seed(3);
      each(each.ids()).backward();
    };
    step(whole);
    step(net);
    expect_gradients(net, gradients(whole));  // every rank has the same batch
  });
}

// Loss weights are fp32 whatever the unit computes in: 1/30 in bf16 would be off by 0.2 %.
TEST(FeaturesOnRanks, ChunkLossInABf16UnitKeepsItsWeights) {
  expect_ranks(2, [](const RankContext& rank) {
    FullyShardOptions options;
    options.mp_policy.param_dtype = at::kBFloat16;
    testing::Net net;
    apply(net, {.chunk_loss = "head", .chunk_rows = 7});
    fully_shard(net.head, mesh_of(rank), options);
    fully_shard(net, mesh_of(rank), options);
    {
      // Equal logits: the loss is the logarithm of the vocabulary's size.
      const at::NoGradGuard no_grad;
      for (const auto& p : parallel::sharded_parameters(net)) p.tensor.local.zero_();
    }
    EXPECT_NEAR(net(net.ids()).item<double>(), std::log(53.0), 1e-5);
  });
}

}  // namespace
}  // namespace shardloom::features
