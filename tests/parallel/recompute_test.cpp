// Units whose forward runs again inside backward.
#include "shardloom/features/apply.h"
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using Events = std::vector<std::string>;
using features::FeaturePlan;
using features::RecomputeMode;

FeaturePlan plan_of(RecomputeMode mode) {
  return {.recompute = {"blocks.0", "blocks.1", "blocks.2"}, .recompute_mode = mode};
}

constexpr RecomputeMode kModes[] = {RecomputeMode::kSavedTensors, RecomputeMode::kReentrant};

TEST(RecomputedUnits, EventsAreThoseWithout) {
  for (const RecomputeMode mode : kModes) {
    for (const bool with_lists : {false, true}) {
      expect_ranks(2, [=](const RankContext& rank) {
        Net net;
        features::apply(net, plan_of(mode));
        shard_blocks(net, mesh_of(rank));
        if (with_lists) {
          FsdpModule::of(net.blocks[2])
              .set_modules_to_backward_prefetch({&net.blocks[1], &net.blocks[0]});
        }
        EventRecorder events(net);
        for (int step = 0; step < 2; ++step) {
          const at::Tensor loss = loss_of(net, ids_of(rank.rank, step));
          EXPECT_EQ(events.take(),
                    (Events{"AG (root)", "AG blocks.0", "AG blocks.1", "AG blocks.2"}));
          loss.backward();
          Events expected = {"AG blocks.2", "AG blocks.1", "RS blocks.2", "AG blocks.0",
                             "RS blocks.1", "RS blocks.0", "RS (root)"};
          if (with_lists) std::swap(expected[2], expected[3]);
          EXPECT_EQ(events.take(), expected);
        }
      });
    }
  }
}

// Two forwards before one backward, with units inside of units that are recomputed: every parameter
// gets its gradient.
TEST(RecomputedUnits, TwoForwardsOfNestedUnits) {
  for (const RecomputeMode mode : kModes) {
    expect_ranks(2, [mode](const RankContext& rank) {
      Net whole, net;
      features::apply(net, plan_of(mode));
      const auto mesh = mesh_of(rank);
      for (auto& block : net.blocks) {
        fully_shard(block->up, mesh);
        fully_shard(*block, mesh);
      }
      fully_shard(net, mesh);
      const auto loss = [](Net& module, int r, int step) {
        return loss_of(module, ids_of(r, step)) + loss_of(module, ids_of(r, step + 10));
      };
      for (int step = 0; step < 3; ++step) {
        for (int r = 0; r < rank.size; ++r) loss(whole, r, step).backward();
        for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad().div_(rank.size);
        loss(net, rank.rank, step).backward();
        // Units may be reduced once for each forward; averages are added instead of summands,
        // which moves the last bits of gradients below 8 in magnitude.
        expect_gradients(net, gradients(whole), 2e-6);
        step_whole(whole);
        step_sharded(net);
      }
    });
  }
}

// A unit inside of one that is recomputed is gathered for both at once.
TEST(RecomputedUnits, NestedUnitsAreGatheredOnceForBackward) {
  for (const RecomputeMode mode : kModes) {
    expect_ranks(2, [mode](const RankContext& rank) {
      Net whole, net;
      features::apply(net, plan_of(mode));
      const auto mesh = mesh_of(rank);
      for (auto& block : net.blocks) {
        fully_shard(block->up, mesh);
        fully_shard(block->down, mesh);
        fully_shard(*block, mesh);
      }
      fully_shard(net, mesh);
      EventRecorder events(net);
      for (int step = 0; step < 2; ++step) {
        expect_same_step(whole, net, rank, step);
        // Root, three blocks and their two units each; all but the root again for backward. The
        // reentrant mode runs them as a forward of their own, which frees them.
        const int again = mode == RecomputeMode::kSavedTensors ? 9 : 15;
        EXPECT_EQ(events.count("AG"), 10 + again);
        EXPECT_EQ(events.count("RS"), 10);
        events.take();
      }
    });
  }
}

// The first unit is recomputed from an input that autograd does not see.
TEST(RecomputedUnits, InputsThatNeedNoGradient) {
  for (const RecomputeMode mode : kModes) {
    expect_ranks(3, [mode](const RankContext& rank) {
      Tower whole, net;
      features::apply(net, plan_of(mode));
      shard_blocks(net, mesh_of(rank));
      for (int step = 0; step < 3; ++step) expect_same_step(whole, net, rank, step);
    });
  }
}

}  // namespace
}  // namespace shardloom::parallel::testing
