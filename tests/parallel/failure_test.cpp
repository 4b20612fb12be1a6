// Exceptions in forward and backward, after which the next step starts clean, and ranks that fail
// or differ.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shardloom/base/error.h"
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Identity whose backward throws.
class ThrowInBackward : public torch::autograd::Function<ThrowInBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw std::runtime_error("thrown in backward");
  }
};

enum class Where { kNowhere, kForward, kBackward };

class Fragile : public nn::Callable<Fragile> {
 public:
  Fragile() : head(5, 5, true, at::TensorOptions().dtype(at::kFloat)) {
    for (int i = 0; i < 3; ++i) blocks.emplace_back(5, 7);
    register_module("blocks", blocks);
    register_module("head", head);
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& given) {
    at::Tensor x = given;
    for (size_t i = 0; i < blocks.size(); ++i) {
      x = blocks[i](x);
      if (i != 1) continue;
      if (breaks == Where::kForward) throw std::runtime_error("thrown in forward");
      if (breaks == Where::kBackward) x = ThrowInBackward::apply(x);
    }
    return head(x);
  }
  Where breaks = Where::kNowhere;
  nn::ModuleList<Block> blocks;
  nn::Linear head;
};
at::Tensor loss_of(Fragile& net, const at::Tensor& inputs) { return net(inputs).pow(2).mean(); }

at::Tensor inputs(int rank, int step) { return inputs_of(rank, step); }

void expect_throws(const std::function<void()>& action, const std::string& text) {
  try {
    action();
    ADD_FAILURE() << "nothing thrown";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

void expect_shards(nn::Module& net) {
  const auto named = net.named_parameters();
  const auto sharded = sharded_parameters(net);
  for (size_t i = 0; i < named.size(); ++i)
    EXPECT_TRUE(named[i].tensor->is_same(sharded[i].parameter)) << named[i].name;
}

void clear_gradients(nn::Module& net) {
  for (auto& p : sharded_parameters(net)) p.parameter.mutable_grad().reset();
}

void expect_recovery(const RankContext& rank,
                     Where where,
                     bool prefetch,
                     bool retry_in_evaluation) {
  Fragile whole, net;
  shard_blocks(net, mesh_of(rank));
  if (prefetch) {
    FsdpModule::of(net.blocks[1]).set_modules_to_forward_prefetch({&net.blocks[2]});
    FsdpModule::of(net.blocks[2])
        .set_modules_to_backward_prefetch({&net.blocks[1], &net.blocks[0]});
  }
  for (int round = 0; round < 2; ++round) {
    expect_same_step(whole, net, rank, round, inputs);
    net.breaks = where;
    expect_throws([&] { loss_of(net, inputs(rank.rank, 9)).backward(); },
                  where == Where::kForward ? "thrown in forward" : "thrown in backward");
    net.breaks = Where::kNowhere;
    if (where == Where::kForward) expect_shards(net);
    clear_gradients(net);
    if (retry_in_evaluation) {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(same_bits(net(inputs(0, 3)), whole(inputs(0, 3))));
    }
    EventRecorder events(net);
    expect_same_step(whole, net, rank, 10 + round, inputs);
    EXPECT_EQ(events.take_counts(), retry_in_evaluation ? "AG 6 RS 4 AR 0" : "AG 7 RS 4 AR 0");
    expect_shards(net);
  }
}

TEST(Failure, AfterAnExceptionInForward) {
  for (const bool prefetch : {false, true}) {
    expect_ranks(2, [=](const RankContext& rank) {
      expect_recovery(rank, Where::kForward, prefetch, false);
    });
  }
}

TEST(Failure, AfterAnExceptionInBackward) {
  for (const bool prefetch : {false, true}) {
    expect_ranks(2, [=](const RankContext& rank) {
      expect_recovery(rank, Where::kBackward, prefetch, false);
    });
  }
}

TEST(Failure, EvaluationAfterAnException) {
  for (const Where where : {Where::kForward, Where::kBackward}) {
    expect_ranks(2, [=](const RankContext& rank) { expect_recovery(rank, where, false, true); });
  }
}

TEST(Failure, AfterAnExceptionInEvaluation) {
  expect_ranks(2, [](const RankContext& rank) {
    Fragile whole, net;
    shard_blocks(net, mesh_of(rank));
    net.breaks = Where::kForward;
    {
      const at::NoGradGuard no_grad;
      expect_throws([&] { net(inputs(0, 0)); }, "thrown in forward");
    }
    net.breaks = Where::kNowhere;
    expect_shards(net);
    for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step, inputs);
  });
}

// autograd's own error, when the graph was freed.
TEST(Failure, AfterASecondBackwardOnTheSameGraph) {
  expect_ranks(2, [](const RankContext& rank) {
    Fragile whole, net;
    shard_blocks(net, mesh_of(rank));
    const at::Tensor loss = loss_of(net, inputs(rank.rank, 7));
    loss.backward();
    expect_throws([&] { loss.backward(); }, "backward through the graph a second time");
    clear_gradients(net);
    for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step, inputs);
  });
}

// Gradients that wait for a later micro batch go with the step that failed.
TEST(Failure, AccumulatedGradientsAreDropped) {
  expect_ranks(4, [](const RankContext& rank) {
    Fragile net, clean;
    const auto mesh = hsdp_mesh_of(rank, 2);
    shard_blocks(net, mesh);
    shard_blocks(clean, mesh);
    for (const bool keeps_whole : {true, false}) {
      FsdpModule root = FsdpModule::of(net);
      if (keeps_whole) {
        root.set_requires_gradient_sync(false);
      } else {
        root.set_requires_all_reduce(false);
      }
      loss_of(net, inputs(rank.rank, 0)).backward();
      net.breaks = Where::kForward;
      expect_throws([&] { net(inputs(rank.rank, 1)); }, "thrown in forward");
      net.breaks = Where::kNowhere;
      root.set_requires_gradient_sync(true);
      clear_gradients(net);
      loss_of(net, inputs(rank.rank, 2)).backward();
      loss_of(clean, inputs(rank.rank, 2)).backward();
      const auto a = sharded_parameters(net), b = sharded_parameters(clean);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_TRUE(same_bits(a[i].parameter.grad(), b[i].parameter.grad()));
      clear_gradients(clean);
    }
  });
}

// A rank that is gone: the others say which unit they waited for.
TEST(Failure, ARankThatDiesIsNamedWithTheUnit) {
  const auto codes = distributed::testing::run_ranks(2, [](const RankContext& rank) {
    Fragile net;
    shard_blocks(net, mesh_of(rank));
    if (rank.rank == 1) {
      net.breaks = Where::kForward;
      expect_throws([&] { net(inputs(1, 0)); }, "thrown in forward");
      ::_exit(42);
    }
    const std::string error = distributed::testing::distributed_error([&] { net(inputs(0, 0)); });
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0"), HasSubstr("unit blocks.2"), HasSubstr("rank 1")));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 42}));
}

TEST(Failure, RanksWithDifferentModelsAreToldWhere) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower net(2, 5, rank.rank == 0 ? 7 : 9);
    shard_blocks(net, mesh_of(rank));
    const std::string error = distributed::testing::distributed_error([&] { net(inputs(0, 0)); });
    EXPECT_THAT(error, AllOf(HasSubstr("unit blocks.0"), HasSubstr("all_gather")));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
