// How often units gather and reduce, how much they send, and control by hand.
#include <gmock/gmock.h>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

constexpr int kBlocks = 3;

std::string counts(int gathers, int reductions) {
  return fmt::format("AG {} RS {} AR 0", gathers, reductions);
}

void run_step(Tower& net, int rank, int step = 0) {
  loss_of(net, inputs_of(rank, step)).backward();
}

TEST(Counts, PerReshardAfterForward) {
  for (const bool reshard : {true, false}) {
    expect_ranks(2, [reshard](const RankContext& rank) {
      Tower net;
      FullyShardOptions options;
      options.reshard_after_forward = reshard;
      const auto mesh = mesh_of(rank);
      for (auto& block : net.blocks) fully_shard(*block, mesh, options);
      fully_shard(net, mesh);
      EventRecorder events(net);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = loss_of(net, inputs_of(rank.rank, step));
        EXPECT_EQ(events.take_counts(), counts(kBlocks + 1, 0));
        loss.backward();
        EXPECT_EQ(events.take_counts(), counts(reshard ? kBlocks : 0, kBlocks + 1));
      }
    });
  }
}

// The padded shards of all parameters go out, padded whole gradients come in.
TEST(Counts, ElementsSent) {
  expect_ranks(3, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    int64_t padded = 0;
    for (const auto& p : whole.named_parameters()) {
      const int64_t rows = p.tensor->size(0);
      padded += (rows + 2) / 3 * (p.tensor->numel() / rows);
    }
    std::map<UnitAction, int64_t> numel;
    FsdpModule::of(net).set_event_listener([&](const UnitEvent& e) { numel[e.action] += e.numel; });
    const at::Tensor loss = loss_of(net, inputs_of(0, 0));
    EXPECT_EQ(numel[UnitAction::kAllGather], padded);
    loss.backward();
    EXPECT_EQ(numel[UnitAction::kReduceScatter], 3 * padded);
  });
}

TEST(Counts, GroupsOfTwoGatherHalvesOfTheWhole) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.world = world_of(rank);
    options.reshard_after_forward = 2;
    const auto mesh = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", options.world->group()}});
    fully_shard(net.blocks[1], mesh, options);
    fully_shard(net, mesh);
    std::vector<int64_t> gathered;
    FsdpModule::of(net).set_event_listener([&](const UnitEvent& e) {
      if (e.action == UnitAction::kAllGather && e.unit == "blocks.1") gathered.push_back(e.numel);
    });
    run_step(net, rank.rank);
    ASSERT_EQ(gathered.size(), 2u);
    EXPECT_EQ(gathered[1], 2 * gathered[0]);  // half of the whole, not a quarter
    {
      // Nothing is kept for a backward that will not come.
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 2; ++i) net(inputs_of(rank.rank, 0));
    }
    EXPECT_EQ(std::vector<int64_t>(gathered.begin() + 2, gathered.end()),
              std::vector<int64_t>(2, gathered[0]));
    gathered.resize(2);
    // A bool replaces the int.
    FsdpModule::of(net).set_reshard_after_forward(true);
    run_step(net, rank.rank);
    ASSERT_EQ(gathered.size(), 4u);
    EXPECT_EQ(gathered[2], gathered[0]);
    EXPECT_EQ(gathered[3], gathered[0]);
  });
}

TEST(Counts, ReshardByHandWhereNoneIsAutomatic) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    FullyShardOptions options;
    options.reshard_after_forward = false;
    shard_blocks(net, mesh_of(rank), options);
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = loss_of(net, inputs_of(rank.rank, step));
      EXPECT_EQ(events.take_counts(), counts(kBlocks + 1, 0));
      for (auto& block : net.blocks) FsdpModule::of(*block).reshard();
      loss.backward();
      EXPECT_EQ(events.take_counts(), counts(kBlocks, kBlocks + 1));
      run_serially(whole, rank.size, step, [](int r, int s) { return inputs_of(r, s); });
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      step_sharded(net);
    }
  });
}

TEST(Counts, SetReshardAfterForward) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    FsdpModule root = FsdpModule::of(net);
    const auto expect = [&](int gathers) {
      run_step(net, rank.rank);
      EXPECT_EQ(events.take_counts(), counts(gathers, kBlocks + 1));
    };
    expect(2 * kBlocks + 1);
    root.set_reshard_after_forward(true);  // the root, too
    expect(2 * kBlocks + 2);
    root.set_reshard_after_forward(false, /*recurse=*/false);
    expect(2 * kBlocks + 1);
    root.set_reshard_after_forward(false);
    expect(kBlocks + 1);
    FsdpModule::of(net.blocks[1]).set_reshard_after_forward(true);
    expect(kBlocks + 2);
  });
}

TEST(Counts, WithoutReshardAfterBackwardTheNextStepGathersNothing) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    FsdpModule root = FsdpModule::of(net);
    root.set_reshard_after_forward(false);
    root.set_reshard_after_backward(false);
    run_step(net, rank.rank);
    EXPECT_EQ(events.take_counts(), counts(kBlocks + 1, kBlocks + 1));
    root.set_reshard_after_backward(true);
    run_step(net, rank.rank);
    EXPECT_EQ(events.take_counts(), counts(0, kBlocks + 1));
    run_step(net, rank.rank);
    EXPECT_EQ(events.take_counts(), counts(kBlocks + 1, kBlocks + 1));
  });
}

TEST(Counts, OneRankSendsNothing) {
  expect_ranks(1, [](const RankContext& rank) {
    for (const bool low_precision : {false, true}) {
      Tower net;
      FullyShardOptions options;
      if (low_precision) options.mp_policy.param_dtype = at::kBFloat16;
      shard_blocks(net, mesh_of(rank), options);
      EventRecorder events(net);
      run_step(net, 0);
      EXPECT_EQ(events.take_counts(), counts(0, 0));
      for (const auto& p : sharded_parameters(net)) {
        EXPECT_GT(p.parameter.grad().abs().sum().item<float>(), 0);
        EXPECT_EQ(p.parameter.grad().scalar_type(), at::kFloat);
      }
    }
  });
}

bool shows_whole(nn::Module& net, nn::Module& whole) {
  const auto a = net.named_parameters(), b = whole.named_parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].tensor->sizes() != b[i].tensor->sizes() || !same_bits(*a[i].tensor, *b[i].tensor))
      return false;
  }
  return true;
}

bool shows_shards(nn::Module& net) {
  for (const auto& p : sharded_parameters(net)) {
    const auto named = net.named_parameters();
    const auto at = std::find_if(named.begin(), named.end(),
                                 [&](const auto& n) { return n.name == p.tensor.name; });
    if (!at->tensor->is_same(p.parameter)) return false;
  }
  return true;
}

TEST(Counts, UnshardAndReshardByHand) {
  for (const bool async : {false, true}) {
    expect_ranks(2, [async](const RankContext& rank) {
      Tower whole, net;
      shard_blocks(net, mesh_of(rank));
      // Before any forward, and so before there is a root.
      for (auto& block : net.blocks) {
        UnshardHandle handle = FsdpModule::of(*block).unshard(async);
        if (async) {
          EXPECT_TRUE(shows_shards(*block));
          handle.wait();
        }
        handle.wait();
      }
      for (int i = 0; i < kBlocks; ++i)
        EXPECT_TRUE(shows_whole(net.blocks[i], whole.blocks[i])) << i;
      FsdpModule::of(net.blocks[1]).reshard();
      EXPECT_TRUE(shows_shards(net.blocks[1]));
      EventRecorder events(net);
      run_step(net, rank.rank);
      EXPECT_EQ(events.take(),
                (std::vector<std::string>{"AG (root)", "AG blocks.1", "AG blocks.2", "AG blocks.1",
                                          "RS blocks.2", "AG blocks.0", "RS blocks.1", "RS (root)",
                                          "RS blocks.0"}));
      run_serially(whole, rank.size, 0, [](int r, int s) { return inputs_of(r, s); });
      expect_gradients(net, gradients(whole));
    });
  }
}

TEST(Counts, AllUnitsUnshardedAhead) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    for (int step = 0; step < 3; ++step) {
      for (auto& block : net.blocks) FsdpModule::of(*block).unshard(/*async_op=*/true);
      expect_same_step(whole, net, rank, step);
      const auto seen = events.take();
      EXPECT_EQ(std::count(seen.begin(), seen.end(), "AG blocks.0"), step == 0 ? 1 : 2);
    }
  });
}

class Plain : public nn::Callable<Plain> {
 public:
  at::Tensor forward(const at::Tensor& x) { return x + 1; }
};

TEST(Counts, UnshardWithoutParameters) {
  expect_ranks(2, [](const RankContext& rank) {
    Plain plain;
    FsdpModule unit = fully_shard(plain, mesh_of(rank));
    UnshardHandle handle = unit.unshard(/*async_op=*/true);
    handle.wait();
    unit.reshard();
    EXPECT_TRUE(at::equal(plain(at::ones({2})), at::full({2}, 2.0f)));
    EXPECT_EQ(unit.unit_name(), "");
  });
}

TEST(Counts, TheLogNamesActionsAndUnits) {
  expect_ranks(2, [](const RankContext& rank) {
    ::setenv("SHARDLOOM_LOG_COMM", "1", 1);
    Tower net(1);
    shard_blocks(net, mesh_of(rank));
    ::testing::internal::CaptureStderr();
    run_step(net, rank.rank);
    const std::string log = ::testing::internal::GetCapturedStderr();
    // head: (3 * 5 + 3) elements a rank; block: 3 + 4 * 5 + 4 + 3 * 7 + 3.
    for (const char* line :
         {"all_gather (root) 18\n", "all_gather blocks.0 51\n", "reshard blocks.0 0\n",
          "reduce_scatter blocks.0 102\n", "reduce_scatter (root) 36\n"}) {
      EXPECT_THAT(log, ::testing::HasSubstr(line));
    }
  });
}

// What members show: after forward whole parameters where they stay gathered, else the shards.
TEST(Counts, WhatMembersShowAfterForwardAndBackward) {
  for (const bool reshard : {true, false}) {
    expect_ranks(3, [reshard](const RankContext& rank) {
      Tower whole, net;
      FullyShardOptions options;
      options.reshard_after_forward = reshard;
      shard_blocks(net, mesh_of(rank), options);
      FsdpModule::of(net);
      EXPECT_TRUE(shows_shards(net));
      const at::Tensor loss = loss_of(net, inputs_of(0, 0));
      for (int i = 0; i < kBlocks; ++i) {
        EXPECT_EQ(shows_shards(net.blocks[i]), reshard);
        EXPECT_EQ(shows_whole(net.blocks[i], whole.blocks[i]), !reshard);
      }
      EXPECT_EQ(shows_whole(net.head, whole.head), !reshard);
      FsdpModule::of(net).reshard();
      EXPECT_TRUE(shows_shards(net.head));
      loss.backward();
      EXPECT_TRUE(shows_shards(net));
    });
  }
}

TEST(Counts, TheRootShowsWholeParametersUntilBackward) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    const at::Tensor loss = loss_of(net, inputs_of(0, 0));
    EXPECT_TRUE(shows_whole(net.head, whole.head));
    EXPECT_TRUE(shows_shards(net.blocks[0]));
    loss.backward();
    EXPECT_TRUE(shows_shards(net));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
