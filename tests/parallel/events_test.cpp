// The order in which units gather, free and reduce: two ranks, compared word by word.
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using Events = std::vector<std::string>;

// x: the Tower's inputs need no gradient.
Events forward_events(Tower& net, EventRecorder& events, at::Tensor* loss) {
  *loss = loss_of(net, inputs_of(0, 0));
  return events.take();
}

Events backward_events(EventRecorder& events, const at::Tensor& loss) {
  loss.backward();
  return events.take();
}

const Events kForward = {"AG (root)", "AG blocks.0", "AG blocks.1", "AG blocks.2"};
const Events kBackward = {"AG blocks.2", "AG blocks.1", "RS blocks.2", "AG blocks.0",
                          "RS blocks.1", "RS (root)",   "RS blocks.0"};

TEST(Events, OneForwardOneBackward) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    for (int step = 0; step < 3; ++step) {
      at::Tensor loss;
      EXPECT_EQ(forward_events(net, events, &loss), kForward);
      EXPECT_EQ(backward_events(events, loss), kBackward);
      step_sharded(net);
    }
  });
}

TEST(Events, AFirstUnitWhoseInputsNeedGradientsIsReducedBeforeTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Net net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    const at::Tensor loss = loss_of(net, ids_of(0, 0));
    EXPECT_EQ(events.take(), kForward);
    EXPECT_EQ(backward_events(events, loss),
              (Events{"AG blocks.2", "AG blocks.1", "RS blocks.2", "AG blocks.0", "RS blocks.1",
                      "RS blocks.0", "RS (root)"}));
  });
}

TEST(Events, WithoutReshardAfterForwardBackwardGathersNothing) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.reshard_after_forward = false;
    shard_blocks(net, mesh_of(rank), options);
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      at::Tensor loss;
      EXPECT_EQ(forward_events(net, events, &loss), kForward);
      EXPECT_EQ(backward_events(events, loss),
                (Events{"RS blocks.2", "RS blocks.1", "RS (root)", "RS blocks.0"}));
    }
  });
}

TEST(Events, GroupsOfTwoGatherInTheSameOrder) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.world = world_of(rank);
    const auto mesh = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", options.world->group()}});
    options.reshard_after_forward = 2;
    for (auto& block : net.blocks) fully_shard(*block, mesh, options);
    fully_shard(net, mesh);
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      at::Tensor loss;
      EXPECT_EQ(forward_events(net, events, &loss), kForward);
      EXPECT_EQ(backward_events(events, loss), kBackward);
    }
  });
}

TEST(Events, ARootThatIsAskedToReshardGathersAgain) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    FullyShardOptions options;
    options.reshard_after_forward = true;
    shard_blocks(net, mesh_of(rank), options);
    EventRecorder events(net);
    at::Tensor loss;
    EXPECT_EQ(forward_events(net, events, &loss), kForward);
    Events expected = {"AG (root)"};
    expected.insert(expected.end(), kBackward.begin(), kBackward.end());
    EXPECT_EQ(backward_events(events, loss), expected);
  });
}

TEST(Events, UnitsAreFreedAsSoonAsTheyHaveRun) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net(2);
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net, /*with_reshards=*/true);
    at::Tensor loss;
    EXPECT_EQ(
        forward_events(net, events, &loss),
        (Events{"AG (root)", "AG blocks.0", "free blocks.0", "AG blocks.1", "free blocks.1"}));
    EXPECT_EQ(backward_events(events, loss),
              (Events{"AG blocks.1", "AG blocks.0", "free blocks.1", "RS blocks.1", "free (root)",
                      "RS (root)", "free blocks.0", "RS blocks.0"}));
  });
}

TEST(Events, TwoForwardsThenOneBackward) {
  expect_ranks(2, [](const RankContext& rank) {
    Net net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor first = loss_of(net, ids_of(0, 0));
      EXPECT_EQ(events.take(), kForward);
      const at::Tensor second = loss_of(net, ids_of(0, 1));
      EXPECT_EQ(events.take(), (Events{"AG blocks.0", "AG blocks.1", "AG blocks.2"}));
      // The second forward's backward comes first and finds no gradient that is complete.
      EXPECT_EQ(backward_events(events, first + second),
                (Events{"AG blocks.2", "AG blocks.1", "AG blocks.0", "AG blocks.2", "AG blocks.1",
                        "RS blocks.2", "AG blocks.0", "RS blocks.1", "RS blocks.0", "RS (root)"}));
    }
  });
}

// A base and two heads with a loss each.
class Fork : public nn::Callable<Fork> {
 public:
  Fork() {
    register_module("base", base);
    register_module("left", left);
    register_module("right", right);
    fill_parameters(*this);
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor shared = base(x);
    return {left(shared), right(shared)};
  }
  Block base{5, 7}, left{5, 7}, right{5, 7};
};

// Each head's gradients are averaged over ranks by themselves, then added.
void run_fork_serially(Fork& whole, int ranks, int step) {
  Tensors sums;
  for (const int head : {0, 1}) {
    for (int r = 0; r < ranks; ++r) {
      auto [left, right] = whole(inputs_of(r, step));
      (head == 0 ? left : right).pow(2).mean().backward();
    }
    for (const auto& p : whole.named_parameters()) {
      if (!p.tensor->grad().defined()) continue;
      const at::Tensor mean = p.tensor->grad() / ranks;
      sums[p.name] = sums.contains(p.name) ? sums[p.name] + mean : mean;
      p.tensor->mutable_grad().reset();
    }
  }
  for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad() = sums[p.name];
}

TEST(Events, SplitBackwardPrefetchesAUnitThatDoesNotCome) {
  expect_ranks(3, [](const RankContext& rank) {
    Fork whole, net;
    const auto mesh = mesh_of(rank);
    for (Block* block : {&net.base, &net.left, &net.right}) fully_shard(*block, mesh);
    FsdpModule root = fully_shard(net, mesh);
    EventRecorder events(net);
    for (int step = 0; step < 3; ++step) {
      auto [left, right] = net(inputs_of(rank.rank, step));
      EXPECT_EQ(events.take(), (Events{"AG base", "AG left", "AG right"}));
      root.set_is_last_backward(false);
      left.pow(2).mean().backward({}, /*retain_graph=*/true);
      EXPECT_EQ(events.take(), (Events{"AG left", "AG base", "RS left", "RS base"}));
      root.set_is_last_backward(true);
      right.pow(2).mean().backward();
      EXPECT_EQ(events.take(), (Events{"AG right", "AG left", "RS right", "AG base", "RS base"}));
      run_fork_serially(whole, rank.size, step);
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      step_sharded(net);
    }
  });
}

TEST(Events, ForwardPrefetchListsAreIssuedAfterTheUnitsOwnGather) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    FsdpModule::of(net).set_modules_to_forward_prefetch({&net.blocks[0]});
    FsdpModule::of(net.blocks[0]).set_modules_to_forward_prefetch({&net.blocks[1], &net.blocks[2]});
    EventRecorder events(net, /*with_reshards=*/true);
    at::Tensor loss;
    const Events expected = {"AG (root)",     "AG blocks.0",   "AG blocks.1",  "AG blocks.2",
                             "free blocks.0", "free blocks.1", "free blocks.2"};
    EXPECT_EQ(forward_events(net, events, &loss), expected);
    loss.backward();
    step_sharded(net);
    loss_of(whole, inputs_of(0, 0)).backward();
    step_whole(whole);
    for (int step = 1; step < 3; ++step) expect_same_step(whole, net, rank, step);
  });
}

TEST(Events, BackwardPrefetchListsReplaceTheUnitBefore) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    FsdpModule::of(net).set_modules_to_backward_prefetch({&net.blocks[2]});
    FsdpModule::of(net.blocks[2])
        .set_modules_to_backward_prefetch({&net.blocks[1], &net.blocks[0]});
    at::Tensor loss;
    forward_events(net, events, &loss);
    EXPECT_EQ(backward_events(events, loss),
              (Events{"AG blocks.2", "AG blocks.1", "AG blocks.0", "RS blocks.2", "RS blocks.1",
                      "RS (root)", "RS blocks.0"}));
    FsdpModule::of(net).set_modules_to_backward_prefetch({});
    for (auto& block : net.blocks) FsdpModule::of(*block).set_modules_to_backward_prefetch({});
    forward_events(net, events, &loss);
    EXPECT_EQ(backward_events(events, loss),
              (Events{"AG blocks.2", "RS blocks.2", "AG blocks.1", "RS blocks.1", "AG blocks.0",
                      "RS (root)", "RS blocks.0"}));
  });
}

TEST(Events, WrongPrefetchListsCostGathersButNotResults) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    FsdpModule::of(net.blocks[2]).set_modules_to_forward_prefetch({&net.blocks[0]});
    FsdpModule::of(net.blocks[1]).set_modules_to_backward_prefetch({&net.blocks[2]});
    FsdpModule::of(net.blocks[0])
        .set_modules_to_backward_prefetch({&net.blocks[1], &net.blocks[2]});
    for (int step = 0; step < 4; ++step) expect_same_step(whole, net, rank, step);
  });
}

TEST(Events, TwoAheadBothWays) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole(5), net(5);
    shard_blocks(net, mesh_of(rank));
    for (int i = 0; i < 5; ++i) {
      std::vector<nn::Module*> after, before;
      for (int ahead = 1; ahead <= 2; ++ahead) {
        if (i + ahead < 5) after.push_back(&net.blocks[i + ahead]);
        if (i - ahead >= 0) before.push_back(&net.blocks[i - ahead]);
      }
      FsdpModule::of(net.blocks[i]).set_modules_to_forward_prefetch(after);
      FsdpModule::of(net.blocks[i]).set_modules_to_backward_prefetch(before);
    }
    for (int step = 0; step < 3; ++step) expect_same_step(whole, net, rank, step);
    EventRecorder events(net);
    expect_same_step(whole, net, rank, 3);
    EXPECT_EQ(events.take_counts(), "AG 11 RS 6 AR 0");
  });
}

// Blocks 0, 1, 0.
class Return : public nn::Callable<Return> {
 public:
  Return() {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(5, 7);
    register_module("blocks", blocks);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return blocks[0](blocks[1](blocks[0](x))); }
  nn::ModuleList<Block> blocks;
};
at::Tensor loss_of(Return& net, const at::Tensor& inputs) { return net(inputs).pow(2).mean(); }

TEST(Events, AUnitThatRunsTwiceInOneForward) {
  expect_ranks(3, [](const RankContext& rank) {
    Return whole, net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    loss_of(net, inputs_of(rank.rank, 0));
    EXPECT_EQ(events.take(), (Events{"AG blocks.0", "AG blocks.1", "AG blocks.0"}));
    for (int step = 0; step < 3; ++step) {
      const auto inputs = [](int r, int s) { return inputs_of(r, s); };
      expect_same_step(whole, net, rank, step, inputs);
      EXPECT_EQ(events.take(),
                (Events{"AG blocks.0", "AG blocks.1", "AG blocks.0", "AG blocks.0", "AG blocks.1",
                        "AG blocks.0", "RS blocks.1", "RS blocks.0"}));
    }
  });
}

class Scale : public nn::Callable<Scale> {
 public:
  at::Tensor forward(const at::Tensor& x) { return x * 0.5; }
};

// Block, a unit without parameters, block.
class Gap : public nn::Callable<Gap> {
 public:
  Gap() {
    register_module("first", first);
    register_module("scale", scale);
    register_module("last", last);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return last(scale(first(x))); }
  Block first{5, 7}, last{5, 7};
  Scale scale;
};

TEST(Events, AUnitWithoutParametersDoesNotBreakThePrefetch) {
  expect_ranks(2, [](const RankContext& rank) {
    Gap net;
    const auto mesh = mesh_of(rank);
    fully_shard(net.first, mesh);
    fully_shard(net.scale, mesh);
    fully_shard(net.last, mesh);
    fully_shard(net, mesh);
    EventRecorder events(net);
    const at::Tensor loss = net(inputs_of(rank.rank, 0)).mean();
    EXPECT_EQ(events.take(), (Events{"AG first", "AG last"}));
    EXPECT_EQ(backward_events(events, loss),
              (Events{"AG last", "AG first", "RS last", "RS first"}));
  });
}

// A unit around units, the output of which is that of its last child.
class Nested : public nn::Callable<Nested> {
 public:
  Nested() : embed(5, 5, true, at::TensorOptions().dtype(at::kFloat)) {
    register_module("embed", embed);
    register_module("tower", tower);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return tower(embed(x)); }
  nn::Linear embed;
  class Inner : public nn::Callable<Inner> {
   public:
    Inner() : enter(5, 5, true, at::TensorOptions().dtype(at::kFloat)) {
      register_module("enter", enter);
      register_module("block", block);
    }
    at::Tensor forward(const at::Tensor& x) { return block(enter(x)); }
    nn::Linear enter;
    Block block{5, 7};
  };
  Inner tower;
};
at::Tensor loss_of(Nested& net, const at::Tensor& inputs) { return net(inputs).pow(2).mean(); }

TEST(Events, AParentWhoseOutputIsItsChildsIsReducedOnce) {
  expect_ranks(3, [](const RankContext& rank) {
    Nested whole, net;
    const auto mesh = mesh_of(rank);
    fully_shard(net.tower.block, mesh);
    fully_shard(net.tower, mesh);
    fully_shard(net, mesh);
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      expect_same_step(whole, net, rank, step, [](int r, int s) { return inputs_of(r, s); });
      EXPECT_EQ(events.take(), (Events{"AG (root)", "AG tower", "AG tower.block", "AG tower.block",
                                       "AG tower", "RS tower.block", "RS tower", "RS (root)"}));
    }
  });
}

TEST(Events, EvaluationLeavesTheOrderOfTrainingAlone) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    for (int step = 0; step < 3; ++step) {
      {
        const at::NoGradGuard no_grad;
        net(inputs_of(rank.rank, step));
        EXPECT_EQ(events.take(), kForward);
        EXPECT_TRUE(same_bits(net(inputs_of(0, 9)), whole(inputs_of(0, 9))));
        // The root stays gathered, as in training.
        EXPECT_EQ(events.take(), Events(kForward.begin() + 1, kForward.end()));
      }
      expect_same_step(whole, net, rank, step);
      Events expected(kForward.begin() + 1, kForward.end());
      expected.insert(expected.end(), kBackward.begin(), kBackward.end());
      EXPECT_EQ(events.take(), expected);
    }
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
