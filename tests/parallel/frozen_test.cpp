// Parameters that are not trained, in units with others or alone, and of other types.
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using Freezes = std::function<bool(const std::string&)>;

void freeze(nn::Module& whole, nn::Module& net, const Freezes& is_frozen) {
  for (const auto& p : whole.named_parameters()) p.tensor->requires_grad_(!is_frozen(p.name));
  for (auto& p : sharded_parameters(net)) p.parameter.requires_grad_(!is_frozen(p.tensor.name));
}

bool starts_with(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

bool is_bias(const std::string& name) { return name.ends_with("bias"); }

// Elements that each unit sends to be reduced.
std::map<std::string, int64_t> reduced_numel(nn::Module& root, const std::function<void()>& run) {
  std::map<std::string, int64_t> numel;
  FsdpModule::of(root).set_event_listener([&](const UnitEvent& e) {
    if (e.action == UnitAction::kReduceScatter) numel[e.unit] += e.numel;
  });
  run();
  FsdpModule::of(root).set_event_listener(nullptr);
  return numel;
}

int64_t padded_numel(nn::Module& module, int ranks, const Freezes& is_frozen) {
  int64_t sum = 0;
  for (const auto& p : module.named_parameters()) {
    const int64_t rows = p.tensor->size(0);
    if (!is_frozen(p.name)) sum += (rows + ranks - 1) / ranks * ranks * (p.tensor->numel() / rows);
  }
  return sum;
}

TEST(Frozen, WithinUnitsOnlyTrainedGradientsAreSent) {
  for (const bool reshard : {true, false}) {
    expect_ranks(2, [reshard](const RankContext& rank) {
      Net whole, net;
      FullyShardOptions options;
      options.reshard_after_forward = reshard;
      shard_blocks(net, mesh_of(rank), options);
      freeze(whole, net, is_bias);
      for (int step = 0; step < 3; ++step) expect_same_step(whole, net, rank, step);
      const auto numel = reduced_numel(net, [&] { loss_of(net, ids_of(rank.rank, 0)).backward(); });
      EXPECT_EQ(numel.at("blocks.1"), padded_numel(whole.blocks[1], 2, is_bias));
      EXPECT_EQ(numel.size(), 4u);
    });
  }
}

// A unit with frozen parameters is reduced when its backward ends, not by the final callback.
TEST(Frozen, WithinUnitsTheOrderStays) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    shard_blocks(net, mesh_of(rank));
    freeze(whole, net, is_bias);
    EventRecorder events(net);
    const at::Tensor loss = loss_of(net, ids_of(rank.rank, 0));
    events.take();
    loss.backward();
    EXPECT_EQ(events.take(),
              (std::vector<std::string>{"AG blocks.2", "AG blocks.1", "RS blocks.2", "AG blocks.0",
                                        "RS blocks.1", "RS blocks.0", "RS (root)"}));
  });
}

TEST(Frozen, AcrossUnitsThenUnfrozen) {
  for (const bool reshard : {true, false}) {
    expect_ranks(3, [reshard](const RankContext& rank) {
      Net whole, net;
      FullyShardOptions options;
      options.reshard_after_forward = reshard;
      shard_blocks(net, mesh_of(rank), options);
      const auto first_only = [](const std::string& name) {
        return starts_with(name, "blocks.1.") || starts_with(name, "blocks.2.");
      };
      freeze(whole, net, first_only);
      EventRecorder events(net);
      for (int step = 0; step < 3; ++step) {
        expect_same_step(whole, net, rank, step);
        // Their inputs need gradients, so backward gathers them, but nothing is reduced.
        EXPECT_EQ(events.take_counts(), reshard ? "AG 8 RS 2 AR 0" : "AG 4 RS 2 AR 0");
      }
      {
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(same_bits(net(ids_of(0, 0)), whole(ids_of(0, 0))));
      }
      events.take();
      // All are gathered or (the root) still there, and none are frozen from here on.
      freeze(whole, net, [](const std::string&) { return false; });
      for (int step = 0; step < 3; ++step) {
        expect_same_step(whole, net, rank, step);
        EXPECT_EQ(events.count("RS"), 4);
        events.take();
      }
      freeze(whole, net, [](const std::string& name) { return starts_with(name, "blocks.0."); });
      for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step);
    });
  }
}

// The root is gathered when its parameters are frozen or unfrozen.
TEST(Frozen, ChangesReachGatheredParameters) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    shard_blocks(net, mesh_of(rank));
    const auto evaluate = [&] {
      const at::NoGradGuard no_grad;
      net(ids_of(0, 0));
    };
    const auto is_head = [](const std::string& name) { return starts_with(name, "head."); };
    evaluate();
    freeze(whole, net, is_head);
    expect_same_step(whole, net, rank, 0);
    evaluate();
    freeze(whole, net, [](const std::string&) { return false; });
    expect_same_step(whole, net, rank, 1);
  });
}

TEST(Frozen, BackwardDoesNotReachUnitsBeforeTheFirstTrainedOne) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    freeze(whole, net, [](const std::string& name) { return !starts_with(name, "blocks.2."); });
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      expect_same_step(whole, net, rank, step);
      EXPECT_EQ(events.take(),
                (std::vector<std::string>{"AG (root)", "AG blocks.0", "AG blocks.1", "AG blocks.2",
                                          "AG blocks.2", "RS blocks.2"}));
    }
  });
}

TEST(Frozen, TwoForwardsOfUnitsWithFrozenParameters) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    shard_blocks(net, mesh_of(rank));
    freeze(whole, net,
           [](const std::string& name) { return is_bias(name) || starts_with(name, "blocks.1."); });
    const auto loss = [](Net& module, int r, int step) {
      return loss_of(module, ids_of(r, step)) + loss_of(module, ids_of(r, step + 10));
    };
    for (int step = 0; step < 3; ++step) {
      for (int r = 0; r < rank.size; ++r) loss(whole, r, step).backward();
      for (const auto& p : whole.named_parameters()) {
        if (p.tensor->grad().defined()) p.tensor->mutable_grad().div_(rank.size);
      }
      loss(net, rank.rank, step).backward();
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      step_sharded(net);
    }
  });
}

TEST(Frozen, EverythingFrozenIsInference) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    freeze(whole, net, [](const std::string&) { return true; });
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = inputs_of(rank.rank, step).requires_grad_();
      const at::Tensor y = inputs_of(rank.rank, step).requires_grad_();
      net(x).pow(2).sum().backward();
      whole(y).pow(2).sum().backward();
      EXPECT_TRUE(same_bits(x.grad(), y.grad()));
      for (const auto& p : sharded_parameters(net)) EXPECT_FALSE(p.parameter.grad().defined());
    }
  });
}

// Types of frozen parameters do not matter to the reduction; on the wire all are bytes.
TEST(Frozen, OtherTypesInOneUnit) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat8_e4m3fn, at::kByte}) {
    expect_ranks(3, [dtype](const RankContext& rank) {
      const auto make = [&] {
        return std::vector<at::Tensor>{at::arange(1, 8, at::kFloat).requires_grad_(),
                                       at::arange(0, 15, at::kFloat).view({5, 3}).to(dtype),
                                       at::arange(1, 5, at::kFloat).view({2, 2}).requires_grad_()};
      };
      Weights whole(make()), net(make());
      fully_shard(net, mesh_of(rank));
      EventRecorder events(net);
      for (int step = 0; step < 3; ++step) {
        expect_same_step(whole, net, rank, step,
                         [](int r, int s) { return at::full({2}, 0.01 * (r + s + 1)); });
        EXPECT_EQ(events.take_counts(), "AG 1 RS 1 AR 0");
      }
      FsdpModule::of(net).unshard();
      EXPECT_TRUE(same_bits(net.w[1], make()[1]));
    });
  }
}

TEST(Frozen, ParamDtypeOfTheFrozenOnes) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto make = [] {
      return std::vector<at::Tensor>{at::full({3}, 1.5f).requires_grad_(),
                                     at::full({3}, 2.0f, at::kBFloat16)};
    };
    Weights net(make());
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    fully_shard(net, mesh_of(rank), options);
    loss_of(net, at::ones({1})).backward();
    const auto params = sharded_parameters(net);
    EXPECT_EQ(params[0].parameter.grad().scalar_type(), at::kFloat);
    EXPECT_FALSE(params[1].parameter.grad().defined());
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
