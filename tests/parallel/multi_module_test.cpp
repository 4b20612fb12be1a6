// One unit of several modules, and units that are gathered around the calls of another module.
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using Events = std::vector<std::string>;

const at::TensorOptions kFloats = at::TensorOptions().dtype(at::kFloat);

// Body, then norm and head, which make one unit.
class Chunked : public nn::Callable<Chunked> {
 public:
  Chunked() : norm(5, 1e-6, kFloats), head(5, 9, true, kFloats) {
    register_module("body", body);
    register_module("norm", norm);
    register_module("head", head);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x, bool with_head) {
    const at::Tensor y = norm(body(x));
    return with_head ? head(y) : y;
  }
  Block body{5, 7};
  nn::RmsNorm norm;
  nn::Linear head;
};

void shard(Chunked& net,
           const std::shared_ptr<const DeviceMesh>& mesh,
           const FullyShardOptions& options = {}) {
  fully_shard(net.body, mesh, options);
  fully_shard({&net.norm, &net.head}, mesh, options);
  fully_shard(net, mesh, options);
}

at::Tensor loss_of(Chunked& net, const at::Tensor& inputs) {
  return net(inputs, true).pow(2).mean();
}

at::Tensor inputs(int rank, int step) { return inputs_of(rank, step); }

TEST(MultiModule, GatheredBeforeTheFirstAndFreedAfterTheLast) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    shard(net, mesh_of(rank));
    EventRecorder events(net, /*with_reshards=*/true);
    for (int step = 0; step < 3; ++step) {
      expect_same_step(whole, net, rank, step, inputs);
      EXPECT_EQ(events.take(),
                (Events{"AG body", "free body", "AG norm+head", "free norm+head", "AG norm+head",
                        "AG body", "free norm+head", "RS norm+head", "free body", "RS body"}));
    }
  });
}

TEST(MultiModule, ReshardOffGathersOnce) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    FullyShardOptions options;
    options.reshard_after_forward = false;
    shard(net, mesh_of(rank), options);
    EventRecorder events(net);
    for (int step = 0; step < 3; ++step) {
      expect_same_step(whole, net, rank, step, inputs);
      EXPECT_EQ(events.take_counts(), "AG 2 RS 2 AR 0");
    }
  });
}

// Only modules that lie in no other of the list count, each parameter once.
TEST(MultiModule, AListWithAModuleInsideAnother) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    const auto mesh = mesh_of(rank);
    fully_shard({&net.body, &net.body.up, &net.norm, &net.head}, mesh);
    fully_shard(net, mesh);
    EXPECT_EQ(sharded_parameters(net).size(), whole.named_parameters().size());
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      expect_same_step(whole, net, rank, step, inputs);
      EXPECT_EQ(events.take_counts(), "AG 2 RS 1 AR 0");
    }
  });
}

// The whole module's gradients with zeros where there is none, averaged.
Tensors averaged(nn::Module& whole, int ranks) {
  Tensors out;
  for (const auto& p : whole.named_parameters()) {
    at::Tensor& grad = p.tensor->mutable_grad();
    out[p.name] = grad.defined() ? grad / ranks : at::zeros_like(*p.tensor).detach();
    grad.reset();
  }
  return out;
}

using Loss = std::function<at::Tensor(Chunked&, int rank, int step)>;

void expect_parity(const Loss& loss, const FullyShardOptions& options = {}, double tolerance = 0) {
  expect_ranks(2, [&](const RankContext& rank) {
    Chunked whole, net;
    shard(net, mesh_of(rank), options);
    for (int step = 0; step < 3; ++step) {
      for (int r = 0; r < rank.size; ++r) loss(whole, r, step).backward();
      const Tensors expected = averaged(whole, rank.size);
      loss(net, rank.rank, step).backward();
      expect_gradients(net, expected, tolerance);
      for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad() = expected.at(p.name);
      step_whole(whole);
      for (const auto& p : unique_parameters(whole)) ASSERT_FALSE(p.tensor->grad().defined());
      step_sharded(net);
      expect_values(net, values(whole), tolerance);
    }
  });
}

TEST(MultiModule, OnlyOneOfTheModulesRuns) {
  expect_parity(
      [](Chunked& net, int r, int step) { return net(inputs(r, step), false).pow(2).mean(); });
}

// The head runs after the root's forward, as a chunked loss does it.
at::Tensor standalone(Chunked& net, int r, int step) {
  const at::Tensor y = net(inputs(r, step), false);
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& chunk : y.chunk(2)) loss = loss + net.head(chunk).pow(2).sum();
  return loss;
}

TEST(MultiModule, APartialForwardThenTheOtherModuleAlone) {
  for (const bool reshard : {true, false}) {
    FullyShardOptions options;
    options.reshard_after_forward = reshard;
    // The unit is reduced after each part of its backward; averages are added instead of summands,
    // which moves the last bits of gradients below 16 in magnitude.
    expect_parity(standalone, options, 4e-6);
  }
}

TEST(MultiModule, TwoPartialForwardsThenOneBackward) {
  expect_parity(
      [](Chunked& net, int r, int step) {
        return net(inputs(r, step), false).pow(2).mean() +
               net(inputs(r, step + 7), false).pow(2).mean();
      },
      {}, 0);
}

TEST(MultiModule, PartialForwardsOverMicroBatches) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    shard(net, mesh_of(rank));
    for (int m = 0; m < 3; ++m) {
      FsdpModule::of(net).set_requires_gradient_sync(m == 2);
      standalone(net, rank.rank, m).backward();
    }
    for (int r = 0; r < rank.size; ++r) {
      for (int m = 0; m < 3; ++m) standalone(whole, r, m).backward();
    }
    // As above, and micro batches of one rank are added first: gradients below 64 in magnitude.
    expect_gradients(net, averaged(whole, rank.size), 1e-5);
  });
}

// A module that ran alone, without gradients, leaves nothing behind that is stale later.
TEST(MultiModule, EvaluationOfOneModuleAlone) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    shard(net, mesh_of(rank));
    for (int step = 0; step < 3; ++step) {
      expect_same_step(whole, net, rank, step, inputs);
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(same_bits(net.head(inputs(0, step)), whole.head(inputs(0, step))));
      EXPECT_EQ(net.head.weight.size(0), (9 + 1 - rank.rank) / 2);
    }
  });
}

TEST(MultiModule, SwitchingReshardBetweenSteps) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    shard(net, mesh_of(rank));
    for (int step = 0; step < 4; ++step) {
      FsdpModule::of(net).set_reshard_after_forward(step % 2 == 0);
      for (int r = 0; r < rank.size; ++r) standalone(whole, r, step).backward();
      standalone(net, rank.rank, step).backward();
      expect_gradients(net, averaged(whole, rank.size), 4e-6);  // as above
      for (auto& p : sharded_parameters(net)) p.parameter.mutable_grad().reset();
    }
  });
}

TEST(MultiModule, InputsOfEachModuleAreCast) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked net;
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    const auto mesh = mesh_of(rank);
    fully_shard({&net.norm, &net.head}, mesh, options);
    fully_shard(net, mesh);
    const at::Tensor y = net(inputs(rank.rank, 0), false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(net.head(y.to(at::kFloat)).scalar_type(), at::kBFloat16);
    EXPECT_EQ(net(inputs(rank.rank, 0), true).scalar_type(), at::kBFloat16);
  });
}

TEST(MultiModule, BackwardPrefetchNamesOneOfTheModules) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked whole, net;
    shard(net, mesh_of(rank));
    FsdpModule::of(net.body).set_modules_to_forward_prefetch({&net.head});
    FsdpModule::of(net.norm).set_modules_to_backward_prefetch({&net.body});
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      expect_same_step(whole, net, rank, step, inputs);
      EXPECT_EQ(events.take(), (Events{"AG body", "AG norm+head", "AG norm+head", "AG body",
                                       "RS norm+head", "RS body"}));
    }
  });
}

// A unit that never runs, beside those that do.
TEST(MultiModule, AListThatDoesNotRun) {
  expect_ranks(2, [](const RankContext& rank) {
    class Spare : public nn::Callable<Spare> {
     public:
      Spare() {
        register_module("used", used);
        register_module("first", first);
        register_module("second", second);
        fill_parameters(*this);
      }
      at::Tensor forward(const at::Tensor& x) { return used(x); }
      Block used{5, 7}, first{5, 7}, second{5, 7};
    };
    Spare whole, net;
    const auto mesh = mesh_of(rank);
    fully_shard(net.used, mesh);
    fully_shard({&net.first, &net.second}, mesh);
    fully_shard(net, mesh);
    EventRecorder events(net);
    for (int step = 0; step < 2; ++step) {
      for (int r = 0; r < rank.size; ++r) whole(inputs(r, step)).mean().backward();
      net(inputs(rank.rank, step)).mean().backward();
      EXPECT_EQ(events.take(), (Events{"AG used", "AG used", "RS used"}));
      for (const auto& p : whole.named_parameters()) {
        if (p.tensor->grad().defined()) p.tensor->mutable_grad().div_(rank.size);
      }
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      step_sharded(net);
    }
  });
}

// A parent that uses its child's weight without calling the child.
class Borrower : public nn::Callable<Borrower> {
 public:
  Borrower() : table(5, 5, true, kFloats) {
    register_module("table", table);
    register_module("block", block);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return block(at::linear(x, table.weight, table.bias)); }
  nn::Linear table;
  Block block{5, 7};
};

class Lender : public nn::Callable<Lender> {
 public:
  Lender() { register_module("borrower", borrower); }
  at::Tensor forward(const at::Tensor& x) { return borrower(x); }
  Borrower borrower;
};
at::Tensor loss_of(Lender& net, const at::Tensor& inputs) { return net(inputs).pow(2).mean(); }

TEST(HookModule, GathersAroundAnotherModulesCalls) {
  for (const bool reshard : {true, false}) {
    expect_ranks(2, [reshard](const RankContext& rank) {
      Lender whole, net;
      const auto mesh = mesh_of(rank);
      FullyShardOptions options;
      options.reshard_after_forward = reshard;
      fully_shard(net.borrower.block, mesh, options);
      options.hook_module = &net.borrower;
      fully_shard(net.borrower.table, mesh, options);
      fully_shard(net, mesh);
      EventRecorder events(net);
      for (int step = 0; step < 3; ++step) {
        expect_same_step(whole, net, rank, step, inputs);
        EXPECT_EQ(events.take(),
                  reshard ? (Events{"AG borrower.table", "AG borrower.block", "AG borrower.block",
                                    "AG borrower.table", "RS borrower.block", "RS borrower.table"})
                          : (Events{"AG borrower.table", "AG borrower.block", "RS borrower.block",
                                    "RS borrower.table"}));
      }
    });
  }
}

TEST(HookModule, CastsStayWithTheShardedModule) {
  expect_ranks(2, [](const RankContext& rank) {
    Chunked net;
    const auto mesh = mesh_of(rank);
    FullyShardOptions options;
    options.mp_policy = {
        .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat, .output_dtype = at::kFloat};
    options.hook_module = &net.body;
    fully_shard(net.body.up, mesh, options);
    fully_shard(net, mesh);
    const at::Tensor y = net(inputs(rank.rank, 0), false);
    // norm and the residual stay fp32; `up` computes in bf16 and gives fp32 to gelu.
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    y.sum().backward();
    const auto params = sharded_parameters(net.body.up);
    ASSERT_EQ(params.size(), 2u);
    EXPECT_EQ(params[0].parameter.grad().scalar_type(), at::kFloat);
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
