// Replicas, and the factors that gradients are divided by.
#include <gmock/gmock.h>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

// Average over `ranks` of sums of `shard` consecutive ranks; W and its parts are powers of two, so
// that the divisions are exact and the order of the sums is all that counts.
Tensors expected_sums(Tower& whole, int ranks, int shard, int step) {
  Tensors total;
  for (int first = 0; first < ranks; first += shard) {
    Tensors part;
    for (int r = first; r < first + shard; ++r) {
      loss_of(whole, inputs_of(r, step)).backward();
      for (const auto& [name, grad] : gradients(whole))
        part[name] = r == first ? grad : part[name] + grad;
      for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad().reset();
    }
    for (const auto& [name, sum] : part) total[name] = first == 0 ? sum : total[name] + sum;
  }
  return total;
}

Tensors divided(Tensors sums, double divisor) {
  for (auto& [name, sum] : sums) sum = sum / divisor;
  return sums;
}

TEST(Hsdp, BitEqualOnEveryGridOfFourRanks) {
  for (const int replicas : {1, 2, 4}) {
    expect_ranks(4, [replicas](const RankContext& rank) {
      Tower whole, net;
      shard_blocks(net, hsdp_mesh_of(rank, replicas));
      EventRecorder events(net);
      for (int step = 0; step < 3; ++step) {
        loss_of(net, inputs_of(rank.rank, step)).backward();
        // One shard a replica: nothing to gather. One replica: an all-reduce over one rank.
        EXPECT_EQ(events.take_counts(), replicas == 4 ? "AG 0 RS 0 AR 4" : "AG 7 RS 4 AR 4");
        const Tensors expected = divided(expected_sums(whole, 4, 4 / replicas, step), 4);
        expect_gradients(net, expected);
        for (const auto& p : whole.named_parameters())
          p.tensor->mutable_grad() = expected.at(p.name);
        step_whole(whole);
        step_sharded(net);
        expect_values(net, values(whole));
      }
    });
  }
}

TEST(Hsdp, PrecisionAndOffload) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower plain, offloaded;
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    const auto mesh = hsdp_mesh_of(rank, 2);
    shard_blocks(plain, mesh, options);
    options.offload_policy.cpu = true;
    shard_blocks(offloaded, mesh, options);
    for (int step = 0; step < 2; ++step) {
      loss_of(plain, inputs_of(rank.rank, step)).backward();
      loss_of(offloaded, inputs_of(rank.rank, step)).backward();
      const auto a = sharded_parameters(plain), b = sharded_parameters(offloaded);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_TRUE(same_bits(a[i].parameter.grad(), b[i].parameter.grad()));
      step_sharded(plain);
      step_sharded(offloaded);
    }
  });
}

TEST(Hsdp, ReplicasAgreeAfterABroadcastOfParametersAndBuffers) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower net;
    fill_parameters(net, /*seed=*/100 + rank.rank / 2);  // replicas start differently
    const auto mesh = hsdp_mesh_of(rank, 2);
    shard_blocks(net, mesh);
    at::Tensor buffer = at::full({3}, static_cast<float>(rank.rank / 2));
    const auto& replicas = mesh->axis(0).group;
    for (const auto& p : sharded_parameters(net))
      replicas->broadcast(p.tensor.local, /*root=*/0).wait();
    replicas->broadcast(buffer, 0).wait();
    Tower whole;
    fill_parameters(whole, 100);
    expect_values(net, values(whole));
    EXPECT_EQ(buffer.sum().item<float>(), 0);
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    expect_gradients(net, divided(expected_sums(whole, 4, 2, 0), 4));
  });
}

void expect_factor(const RankContext& rank, int replicas, double factor, bool force_sum) {
  Tower whole, net;
  const auto mesh = replicas > 0 ? hsdp_mesh_of(rank, replicas) : mesh_of(rank);
  shard_blocks(net, mesh);
  std::vector<nn::Module*> units = {&net};
  for (auto& block : net.blocks) units.push_back(block.get());
  for (nn::Module* unit : units) {
    if (factor > 0) FsdpModule::of(*unit).set_gradient_divide_factor(factor);
    FsdpModule::of(*unit).set_force_sum_reduction_for_comms(force_sum);
  }
  for (int step = 0; step < 2; ++step) {
    loss_of(net, inputs_of(rank.rank, step)).backward();
    const int shard = replicas > 0 ? rank.size / replicas : rank.size;
    expect_gradients(net, divided(expected_sums(whole, rank.size, shard, step),
                                  factor > 0 ? factor : rank.size));
    for (auto& p : sharded_parameters(net)) p.parameter.mutable_grad().reset();
  }
}

TEST(Divide, ByAFactor) {
  for (const double factor : {1.0, 2.0, 3.5}) {
    expect_ranks(2, [=](const RankContext& rank) { expect_factor(rank, 0, factor, false); });
    expect_ranks(4, [=](const RankContext& rank) { expect_factor(rank, 2, factor, false); });
    expect_ranks(1, [=](const RankContext& rank) { expect_factor(rank, 0, factor, false); });
  }
}

TEST(Divide, SumsAloneThenOneDivision) {
  for (const double factor : {0.0, 5.0}) {
    expect_ranks(2, [=](const RankContext& rank) { expect_factor(rank, 0, factor, true); });
    expect_ranks(4, [=](const RankContext& rank) { expect_factor(rank, 2, factor, true); });
    expect_ranks(1, [=](const RankContext& rank) { expect_factor(rank, 0, factor, true); });
  }
}

TEST(Divide, TheFactorBelongsToOneUnit) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    FsdpModule::of(net).set_gradient_divide_factor(1);  // not to the blocks below
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    Tensors expected = expected_sums(whole, 2, 2, 0);
    for (auto& [name, sum] : expected) {
      if (name.rfind("blocks.", 0) == 0) sum = sum / 2;
    }
    expect_gradients(net, expected);
  });
}

TEST(Divide, AFactorInLowPrecision) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower plain, net;
    FullyShardOptions options;
    options.mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    const auto mesh = mesh_of(rank);
    fully_shard(plain, mesh, options);
    fully_shard(net, mesh, options);
    FsdpModule::of(net).set_gradient_divide_factor(8);
    loss_of(plain, inputs_of(rank.rank, 0)).backward();
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    const auto a = sharded_parameters(plain), b = sharded_parameters(net);
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(same_bits(a[i].parameter.grad() / 4, b[i].parameter.grad()));
  });
}

TEST(Divide, FactorsArePositive) {
  expect_ranks(1, [](const RankContext& rank) {
    Tower net;
    FsdpModule unit = fully_shard(net, mesh_of(rank));
    for (const double factor : {0.0, -1.0, std::nan("")}) {
      EXPECT_THAT(config_error([&] { unit.set_gradient_divide_factor(factor); }),
                  ::testing::HasSubstr("not positive"));
    }
  });
}

// The hook sees the reduced shard of the unit as one tensor and may change it.
TEST(Hook, RunsOnTheReducedShard) {
  for (const int replicas : {0, 2}) {
    expect_ranks(replicas == 0 ? 2 : 4, [replicas](const RankContext& rank) {
      Tower whole, net;
      shard_blocks(net, replicas == 0 ? mesh_of(rank) : hsdp_mesh_of(rank, replicas));
      std::vector<int64_t> sizes;
      FsdpModule::of(net.blocks[1]).set_all_reduce_hook([&](const at::Tensor& grads) {
        sizes.push_back(grads.numel());
        grads.mul_(2);
      });
      loss_of(net, inputs_of(rank.rank, 0)).backward();
      Tensors expected = divided(expected_sums(whole, rank.size, 2, 0), rank.size);
      int64_t padded = 0;
      for (auto& [name, grad] : expected) {
        if (name.rfind("blocks.1.", 0) != 0) continue;
        grad = grad * 2;
        padded += (grad.size(0) + 1) / 2 * (grad.numel() / grad.size(0));
      }
      expect_gradients(net, expected);
      EXPECT_EQ(sizes, (std::vector<int64_t>{padded}));
    });
  }
}

TEST(Hook, RunsOnOneRankToo) {
  expect_ranks(1, [](const RankContext& rank) {
    Tower whole, net;
    FsdpModule unit = fully_shard(net, mesh_of(rank));
    unit.set_all_reduce_hook([](const at::Tensor& grads) { grads.add_(1); });
    loss_of(net, inputs_of(0, 0)).backward();
    Tensors expected = expected_sums(whole, 1, 1, 0);
    for (auto& [name, grad] : expected) grad = grad + 1;
    expect_gradients(net, expected);
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
