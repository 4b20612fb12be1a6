// Units and outputs that a step does not use, on all ranks or on some.
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

// Gradients of one process with zeros for parameters that got none, divided by the ranks.
Tensors averaged(nn::Module& whole, int ranks) {
  Tensors out;
  for (const auto& p : whole.named_parameters()) {
    if (!p.tensor->requires_grad()) continue;
    at::Tensor& grad = p.tensor->mutable_grad();
    out[p.name] = grad.defined() ? grad / ranks : at::zeros_like(*p.tensor).detach();
    grad.reset();
  }
  return out;
}

void step_both(nn::Module& whole, nn::Module& net, const Tensors& grads) {
  for (const auto& p : whole.named_parameters()) {
    if (grads.contains(p.name)) p.tensor->mutable_grad() = grads.at(p.name);
  }
  step_whole(whole);
  step_sharded(net);
  expect_values(net, values(whole));
}

// A layer of the root's, a base and two heads.
class Fork : public nn::Callable<Fork> {
 public:
  Fork() : enter(5, 5, true, at::TensorOptions().dtype(at::kFloat)) {
    register_module("enter", enter);
    register_module("base", base);
    register_module("left", left);
    register_module("right", right);
    fill_parameters(*this);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x, bool use_right) {
    // Each branch adds up its own gradients first, as a unit's inputs do.
    const at::Tensor shared = base(enter(x));
    std::vector<at::Tensor> out = {left(at::alias(shared))};
    if (use_right) out.push_back(right(at::alias(shared)));
    return out;
  }
  nn::Linear enter;
  Block base{5, 7}, left{5, 7}, right{5, 7};
};

void shard_fork(Fork& net, const std::shared_ptr<const DeviceMesh>& mesh) {
  for (Block* block : {&net.base, &net.left, &net.right}) fully_shard(*block, mesh);
  fully_shard(net, mesh);
}

TEST(Unused, AnOutputThatNoLossUsesCountsAsZeros) {
  expect_ranks(2, [](const RankContext& rank) {
    Fork whole, net;
    shard_fork(net, mesh_of(rank));
    for (int step = 0; step < 3; ++step) {
      const auto loss = [&](Fork& fork, int r) {
        const auto out = fork(inputs_of(r, step), true);
        return step == 1 ? out[0].mean() + out[1].mean() : out[0].mean();
      };
      for (int r = 0; r < rank.size; ++r) loss(whole, r).backward();
      const Tensors expected = averaged(whole, rank.size);
      loss(net, rank.rank).backward();
      expect_gradients(net, expected);
      step_both(whole, net, expected);
    }
  });
}

TEST(Unused, AUnitThatNoRankRunsDoesNothing) {
  expect_ranks(2, [](const RankContext& rank) {
    Fork whole, net;
    shard_fork(net, mesh_of(rank));
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      const auto loss = [&](Fork& fork, int r) {
        return fork(inputs_of(r, step), false)[0].mean();
      };
      for (int r = 0; r < rank.size; ++r) loss(whole, r).backward();
      Tensors expected = averaged(whole, rank.size);
      std::erase_if(expected, [](const auto& item) { return item.first.starts_with("right."); });
      loss(net, rank.rank).backward();
      for (const std::string& event : events.take())
        EXPECT_EQ(event.find("right"), std::string::npos) << event;
      expect_gradients(net, expected);
      step_both(whole, net, expected);
    }
  });
}

// Rank r leaves out of its loss what bit r of the step says.
void expect_partial_losses(const RankContext& rank, bool with_lists) {
  Fork whole, net;
  shard_fork(net, mesh_of(rank));
  if (with_lists) {
    FsdpModule::of(net).set_modules_to_backward_prefetch({&net.right, &net.left});
    FsdpModule::of(net.right).set_modules_to_backward_prefetch({&net.left, &net.base});
    FsdpModule::of(net.left).set_modules_to_backward_prefetch({&net.base});
  }
  for (int step = 0; step < (1 << rank.size); ++step) {
    const auto loss = [&](Fork& fork, int r) {
      const auto out = fork(inputs_of(r, step), true);
      return (step >> r & 1) != 0 ? out[0].mean() + out[1].mean() : out[0].mean();
    };
    for (int r = 0; r < rank.size; ++r) loss(whole, r).backward();
    const Tensors expected = averaged(whole, rank.size);
    loss(net, rank.rank).backward();
    expect_gradients(net, expected);
    step_both(whole, net, expected);
  }
}

TEST(Unused, AnOutputThatSomeRanksUse) {
  for (const int ranks : {2, 3}) {
    for (const bool with_lists : {false, true}) {
      expect_ranks(ranks,
                   [=](const RankContext& rank) { expect_partial_losses(rank, with_lists); });
    }
  }
}

TEST(Unused, AParameterOfAUnitThatRunsCountsAsZeros) {
  expect_ranks(2, [](const RankContext& rank) {
    class Partly : public nn::Callable<Partly> {
     public:
      Partly() {
        register_module("used", used);
        register_module("idle", idle);
        fill_parameters(*this);
      }
      at::Tensor forward(const at::Tensor& x) { return used(x); }
      Block used{5, 7}, idle{5, 7};
    };
    Partly whole, net;
    fully_shard(net, mesh_of(rank));
    for (int r = 0; r < rank.size; ++r) whole(inputs_of(r, 0)).mean().backward();
    net(inputs_of(rank.rank, 0)).mean().backward();
    expect_gradients(net, averaged(whole, rank.size));
  });
}

// Two towers: pictures (blocks that a rank without pictures skips), then text.
class TwoTowers : public nn::Callable<TwoTowers> {
 public:
  TwoTowers()
      : patch(5, 5, true, at::TensorOptions().dtype(at::kFloat)),
        join(5, 5, false, at::TensorOptions().dtype(at::kFloat)) {
    for (int i = 0; i < 3; ++i) vision.emplace_back(5, 7);
    for (int i = 0; i < 2; ++i) text.emplace_back(5, 7);
    register_module("patch", patch);
    register_module("vision", vision);
    register_module("join", join);
    register_module("text", text);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x, unsigned vision_mask) {
    at::Tensor y = x;
    if (vision_mask != 0) {
      at::Tensor v = embeds_pictures ? patch(x) : x;
      for (size_t i = 0; i < vision.size(); ++i) {
        if ((vision_mask >> i & 1) != 0) v = vision[i](v);
      }
      y = y + join(v);
    }
    for (auto& block : text) y = (*block)(y);
    return y;
  }
  bool embeds_pictures = true;  // else the first vision block's inputs need no gradient
  nn::Linear patch;
  nn::ModuleList<Block> vision;
  nn::Linear join;
  nn::ModuleList<Block> text;
};

struct SkipCase {
  bool embeds_pictures = true;
  std::function<bool(const std::string&)> is_frozen = [](const std::string&) { return false; };
  bool reshard = true;
  bool with_prefetch = false;
};

void shard_towers(TwoTowers& net,
                  const std::shared_ptr<const DeviceMesh>& mesh,
                  const SkipCase& c) {
  FullyShardOptions options;
  options.reshard_after_forward = c.reshard;
  std::vector<nn::Module*> order;
  for (auto& block : net.vision) order.push_back(block.get());
  for (auto& block : net.text) order.push_back(block.get());
  for (nn::Module* block : order) fully_shard(*static_cast<Block*>(block), mesh, options);
  FsdpModule root = fully_shard(net, mesh);
  root.set_unit_order(order);
  for (size_t i = 0; c.with_prefetch && i + 1 < order.size(); ++i) {
    FsdpModule::of(*order[i]).set_modules_to_forward_prefetch({order[i + 1]});
    FsdpModule::of(*order[i + 1]).set_modules_to_backward_prefetch({order[i]});
  }
}

// masks[step][rank]: the vision blocks that run.
void expect_skips(const RankContext& rank,
                  const std::vector<std::vector<unsigned>>& masks,
                  const SkipCase& c) {
  TwoTowers whole, net;
  whole.embeds_pictures = net.embeds_pictures = c.embeds_pictures;
  shard_towers(net, mesh_of(rank), c);
  for (const auto& p : whole.named_parameters()) p.tensor->requires_grad_(!c.is_frozen(p.name));
  for (auto& p : sharded_parameters(net)) p.parameter.requires_grad_(!c.is_frozen(p.tensor.name));
  for (size_t step = 0; step < masks.size(); ++step) {
    const auto run = [&](TwoTowers& towers, int r) {
      towers(inputs_of(r, static_cast<int>(step)), masks[step][r]).pow(2).mean().backward();
    };
    for (int r = 0; r < rank.size; ++r) run(whole, r);
    const Tensors expected = averaged(whole, rank.size);
    run(net, rank.rank);
    expect_gradients(net, expected);
    step_both(whole, net, expected);
  }
}

const std::vector<std::vector<unsigned>> kMasks = {{7, 0}, {7, 7}, {0, 7}, {0, 0}, {1, 7},
                                                   {6, 1}, {2, 5}, {7, 0}, {3, 4}};

TEST(UnitOrder, RanksSkipUnitsInAnyStep) {
  for (const bool embeds_pictures : {true, false}) {
    for (const bool reshard : {true, false}) {
      expect_ranks(2, [&](const RankContext& rank) {
        expect_skips(rank, kMasks, {.embeds_pictures = embeds_pictures, .reshard = reshard});
      });
    }
  }
}

TEST(UnitOrder, RanksSkipUnitsWithPrefetchLists) {
  expect_ranks(
      2, [](const RankContext& rank) { expect_skips(rank, kMasks, {.with_prefetch = true}); });
}

TEST(UnitOrder, ThreeRanksSkipDifferentUnits) {
  expect_ranks(3, [](const RankContext& rank) {
    expect_skips(rank, {{1, 2, 4}, {0, 7, 6}, {4, 0, 0}, {7, 7, 7}}, {});
  });
}

TEST(UnitOrder, FrozenUnitsAreSkipped) {
  const std::vector<std::function<bool(const std::string&)>> frozen = {
      // Vision is frozen: backward does not enter it.
      [](const std::string& n) { return n.starts_with("vision.") || n.starts_with("patch."); },
      // Backward goes through frozen blocks to the trained patch embedding.
      [](const std::string& n) { return n.starts_with("vision."); },
      [](const std::string& n) { return n.starts_with("vision.1."); },
      [](const std::string& n) { return n.starts_with("text.0.") || n.starts_with("vision.0."); }};
  for (const auto& is_frozen : frozen) {
    expect_ranks(
        2, [&](const RankContext& rank) { expect_skips(rank, kMasks, {.is_frozen = is_frozen}); });
  }
}

TEST(UnitOrder, AFrozenFirstUnitWithoutGradientsIsNotGatheredInBackward) {
  expect_ranks(2, [](const RankContext& rank) {
    TwoTowers net;
    shard_towers(net, mesh_of(rank), {});
    for (auto& p : sharded_parameters(net)) {
      const std::string& name = p.tensor.name;
      p.parameter.requires_grad_(!name.starts_with("vision.") && !name.starts_with("patch."));
    }
    EventRecorder events(net);
    const at::Tensor loss = net(inputs_of(rank.rank, 0), rank.rank == 0 ? 7 : 0).mean();
    events.take();
    loss.backward();
    EXPECT_EQ(events.take(), (std::vector<std::string>{"AG text.1", "AG text.0", "RS text.1",
                                                       "RS text.0", "RS (root)"}));
  });
}

// All ranks issue the same, whatever they skip.
TEST(UnitOrder, EventsDoNotDependOnWhatARankSkips) {
  for (const bool embeds_pictures : {true, false}) {
    expect_ranks(2, [embeds_pictures](const RankContext& rank) {
      TwoTowers net;
      net.embeds_pictures = embeds_pictures;
      shard_towers(net, mesh_of(rank), {});
      EventRecorder events(net);
      const unsigned mask = rank.rank == 0 ? 7 : 0;
      const at::Tensor loss = net(inputs_of(rank.rank, 0), mask).mean();
      EXPECT_EQ(events.take(), (std::vector<std::string>{"AG (root)", "AG vision.0", "AG vision.1",
                                                         "AG vision.2", "AG text.0", "AG text.1"}));
      loss.backward();
      EXPECT_EQ(events.take(),
                (std::vector<std::string>{"AG text.1", "AG text.0", "RS text.1", "AG vision.2",
                                          "RS text.0", "AG vision.1", "RS vision.2", "AG vision.0",
                                          "RS vision.1", "RS vision.0", "RS (root)"}));
    });
  }
}

TEST(UnitOrder, SkippedAtTheEndOfForward) {
  expect_ranks(2, [](const RankContext& rank) {
    Fork whole, net;
    shard_fork(net, mesh_of(rank));
    FsdpModule::of(net).set_unit_order({&net.base, &net.left, &net.right});
    for (int step = 0; step < 4; ++step) {
      const auto loss = [&](Fork& fork, int r) {
        const auto out = fork(inputs_of(r, step), (step + r) % 2 == 0);
        return out.size() == 2 ? out[0].mean() + out[1].mean() : out[0].mean();
      };
      for (int r = 0; r < rank.size; ++r) loss(whole, r).backward();
      const Tensors expected = averaged(whole, rank.size);
      loss(net, rank.rank).backward();
      expect_gradients(net, expected);
      step_both(whole, net, expected);
    }
  });
}

TEST(UnitOrder, SkippedInEvaluation) {
  expect_ranks(2, [](const RankContext& rank) {
    TwoTowers whole, net;
    shard_towers(net, mesh_of(rank), {});
    const at::NoGradGuard no_grad;
    for (const unsigned mask : {7u * rank.rank, 7u - 7u * rank.rank, 0u}) {
      EXPECT_TRUE(
          same_bits(net(inputs_of(rank.rank, 0), mask), whole(inputs_of(rank.rank, 0), mask)));
    }
    for (const auto& p : sharded_parameters(net)) EXPECT_FALSE(p.parameter.grad().defined());
  });
}

TEST(UnitOrder, AccumulationOverMicroBatchesThatSkip) {
  expect_ranks(2, [](const RankContext& rank) {
    TwoTowers whole, net;
    shard_towers(net, mesh_of(rank), {});
    FsdpModule root = FsdpModule::of(net);
    const std::vector<std::vector<unsigned>> masks = {{7, 0}, {0, 0}, {0, 7}};
    for (size_t m = 0; m < masks.size(); ++m) {
      root.set_requires_gradient_sync(m + 1 == masks.size());
      net(inputs_of(rank.rank, static_cast<int>(m)), masks[m][rank.rank]).mean().backward();
    }
    std::vector<Tensors> sums;
    for (int r = 0; r < rank.size; ++r) {
      for (size_t m = 0; m < masks.size(); ++m)
        whole(inputs_of(r, static_cast<int>(m)), masks[m][r]).mean().backward();
      sums.push_back(averaged(whole, 1));
    }
    Tensors expected;
    for (const auto& [name, first] : sums[0]) expected[name] = (first + sums[1].at(name)) / 2;
    expect_gradients(net, expected);
  });
}

// A trained block, and two frozen ones behind it.
class Detour : public nn::Callable<Detour> {
 public:
  Detour() {
    register_module("base", base);
    register_module("first", first);
    register_module("second", second);
    fill_parameters(*this);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor y = base(x);
    return {y, second(first(at::alias(y)))};
  }
  Block base{5, 7}, first{5, 7}, second{5, 7};
};

// Frozen units that one rank's loss does not reach are gathered there all the same.
TEST(Unused, FrozenUnitsThatSomeRanksReach) {
  expect_ranks(2, [](const RankContext& rank) {
    Detour whole, net;
    const auto mesh = mesh_of(rank);
    for (Block* block : {&net.base, &net.first, &net.second}) fully_shard(*block, mesh);
    fully_shard(net, mesh);
    const auto is_trained = [](const std::string& name) { return name.starts_with("base."); };
    for (const auto& p : whole.named_parameters()) p.tensor->requires_grad_(is_trained(p.name));
    for (auto& p : sharded_parameters(net)) p.parameter.requires_grad_(is_trained(p.tensor.name));
    for (int step = 0; step < 3; ++step) {
      const auto loss = [&](Detour& detour, int r) {
        const auto out = detour(inputs_of(r, step));
        return r == step % 2 ? out[0].mean() + out[1].mean() : out[0].mean();
      };
      for (int r = 0; r < rank.size; ++r) loss(whole, r).backward();
      const Tensors expected = averaged(whole, rank.size);
      loss(net, rank.rank).backward();
      expect_gradients(net, expected);
      step_both(whole, net, expected);
    }
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
