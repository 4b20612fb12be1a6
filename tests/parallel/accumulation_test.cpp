// Micro batches: what is sent, and that gradients are those of one process, bit for bit, when it
// adds in the same order.
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

constexpr int kBlocks = 3;
constexpr int kMicroBatches = 3;

enum class Delay { kAll, kRoot, kSomeBlocks };

struct Case {
  bool replicas = false;
  bool reshard_after_forward = true;
  bool reshard_after_backward = true;
  bool offload = false;
  Delay delay = Delay::kAll;         // whose gradients wait for the last micro batch
  bool reduce_scatter_only = false;  // the all-reduce alone waits
};

bool is_delayed(const Case& c, const std::string& parameter) {
  const bool in_block = parameter.rfind("blocks.", 0) == 0;
  switch (c.delay) {
    case Delay::kAll:
      return true;
    case Delay::kRoot:
      return !in_block;
    case Delay::kSomeBlocks:
      break;
  }
  return in_block && parameter[7] != '0';
}

void delay(Tower& net, const Case& c, bool is_last) {
  const auto set = [&](nn::Module& module, bool recurse) {
    FsdpModule unit = FsdpModule::of(module);
    if (c.reduce_scatter_only) {
      unit.set_requires_all_reduce(is_last, recurse);
    } else {
      unit.set_requires_gradient_sync(is_last, recurse);
    }
  };
  if (c.delay == Delay::kAll) set(net, true);
  if (c.delay == Delay::kRoot) set(net, false);
  if (c.delay == Delay::kSomeBlocks) {
    set(net.blocks[1], true);
    set(net.blocks[2], true);
  }
  if (!c.reshard_after_backward) FsdpModule::of(net).set_reshard_after_backward(is_last);
}

// Gradient of each micro batch and rank, by name.
std::vector<std::vector<Tensors>> all_gradients(Tower& whole, int ranks) {
  std::vector<std::vector<Tensors>> grads(kMicroBatches, std::vector<Tensors>(ranks));
  for (int m = 0; m < kMicroBatches; ++m) {
    for (int r = 0; r < ranks; ++r) {
      loss_of(whole, inputs_of(r, m)).backward();
      grads[m][r] = gradients(whole);
      for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad().reset();
    }
  }
  return grads;
}

// Over ranks first .. last in rank order.
at::Tensor sum_of(const std::vector<at::Tensor>& ranks, int first, int count) {
  at::Tensor sum = ranks[first].clone();
  for (int r = first + 1; r < first + count; ++r) sum += ranks[r];
  return sum;
}

// Average of one tensor over all ranks, in the order of the collectives.
at::Tensor average(const std::vector<at::Tensor>& ranks, bool replicas) {
  const int size = static_cast<int>(ranks.size());
  if (!replicas) return sum_of(ranks, 0, size) / size;
  const int half = size / 2;
  return (sum_of(ranks, 0, half) / half + sum_of(ranks, half, half) / half) / 2;
}

Tensors expected_gradients(Tower& whole, int ranks, const Case& c) {
  const auto grads = all_gradients(whole, ranks);
  Tensors expected;
  for (const auto& p : whole.named_parameters()) {
    std::vector<std::vector<at::Tensor>> by_batch;
    for (const auto& batch : grads) {
      by_batch.emplace_back();
      for (const Tensors& rank : batch) by_batch.back().push_back(rank.at(p.name));
    }
    at::Tensor& out = expected[p.name];
    if (!is_delayed(c, p.name)) {
      for (const auto& batch : by_batch)
        out = out.defined() ? out + average(batch, c.replicas) : average(batch, c.replicas);
      continue;
    }
    if (c.reduce_scatter_only) {
      // Averages over each half are added up, then exchanged.
      const int half = ranks / 2;
      std::vector<at::Tensor> halves(2);
      for (const auto& batch : by_batch) {
        for (int h = 0; h < 2; ++h) {
          const at::Tensor mean = sum_of(batch, h * half, half) / half;
          halves[h] = halves[h].defined() ? halves[h] + mean : mean;
        }
      }
      out = (halves[0] + halves[1]) / 2;
      continue;
    }
    std::vector<at::Tensor> sums(ranks);
    for (const auto& batch : by_batch) {
      for (int r = 0; r < ranks; ++r) sums[r] = sums[r].defined() ? sums[r] + batch[r] : batch[r];
    }
    out = average(sums, c.replicas);
  }
  return expected;
}

int delayed_units(const Case& c) {
  return c.delay == Delay::kAll ? kBlocks + 1 : c.delay == Delay::kRoot ? 1 : 2;
}

// Gathers, reduce-scatters and all-reduces of micro batch m.
std::string expected_counts(const Case& c, int m) {
  const bool is_last = m + 1 == kMicroBatches;
  int gathers = kBlocks + 1 + (c.reshard_after_forward ? kBlocks : 0);
  if (!c.reshard_after_backward && m > 0) {
    // Still there from the backward before; those that forward frees come again in backward.
    gathers = c.reshard_after_forward ? kBlocks : 0;
  }
  const int reduced = kBlocks + 1 - (is_last ? 0 : delayed_units(c));
  const int scattered = c.reduce_scatter_only ? kBlocks + 1 : reduced;
  return fmt::format("AG {} RS {} AR {}", gathers, scattered, c.replicas ? reduced : 0);
}

void expect_accumulation(const RankContext& rank, const Case& c) {
  Tower whole, net;
  FullyShardOptions options;
  options.reshard_after_forward = c.reshard_after_forward;
  options.offload_policy.cpu = c.offload;
  const auto mesh = c.replicas ? hsdp_mesh_of(rank, 2) : mesh_of(rank);
  for (auto& block : net.blocks) fully_shard(*block, mesh, options);
  options.reshard_after_forward = {};
  fully_shard(net, mesh, options);
  EventRecorder events(net);
  for (int step = 0; step < 2; ++step) {
    for (int m = 0; m < kMicroBatches; ++m) {
      delay(net, c, m + 1 == kMicroBatches);
      loss_of(net, inputs_of(rank.rank, m)).backward();
      EXPECT_EQ(events.take_counts(), expected_counts(c, m)) << "micro batch " << m;
    }
    const Tensors expected = expected_gradients(whole, rank.size, c);
    expect_gradients(net, expected);
    for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad() = expected.at(p.name);
    step_whole(whole);
    step_sharded(net);
  }
}

TEST(Accumulation, FullySharded) {
  for (const Delay delayed : {Delay::kAll, Delay::kRoot, Delay::kSomeBlocks}) {
    for (const bool reshard : {true, false}) {
      expect_ranks(2, [&](const RankContext& rank) {
        expect_accumulation(rank, {.reshard_after_forward = reshard, .delay = delayed});
      });
    }
  }
}

TEST(Accumulation, ParametersStayGatheredBetweenMicroBatches) {
  for (const bool reshard : {true, false}) {
    expect_ranks(2, [&](const RankContext& rank) {
      expect_accumulation(rank,
                          {.reshard_after_forward = reshard, .reshard_after_backward = false});
    });
  }
}

TEST(Accumulation, WithOffload) {
  expect_ranks(2, [](const RankContext& rank) { expect_accumulation(rank, {.offload = true}); });
}

TEST(Accumulation, Replicas) {
  for (const Delay delayed : {Delay::kAll, Delay::kRoot, Delay::kSomeBlocks}) {
    for (const bool reduce_scatter_only : {false, true}) {
      expect_ranks(4, [&](const RankContext& rank) {
        expect_accumulation(
            rank, {.replicas = true, .delay = delayed, .reduce_scatter_only = reduce_scatter_only});
      });
    }
  }
}

TEST(Accumulation, ReplicasWithoutReshard) {
  for (const bool reduce_scatter_only : {false, true}) {
    expect_ranks(4, [&](const RankContext& rank) {
      expect_accumulation(rank, {.replicas = true,
                                 .reshard_after_forward = false,
                                 .reshard_after_backward = false,
                                 .offload = true,
                                 .reduce_scatter_only = reduce_scatter_only});
    });
  }
}

// Groups of two keep half of the parameters between forward and backward of each micro batch.
TEST(Accumulation, GroupsOfTwo) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower whole, net;
    FullyShardOptions options;
    options.world = world_of(rank);
    options.reshard_after_forward = 2;
    const auto mesh = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", options.world->group()}});
    for (auto& block : net.blocks) fully_shard(*block, mesh, options);
    fully_shard(net, mesh);
    const Case c;
    EventRecorder events(net);
    for (int m = 0; m < kMicroBatches; ++m) {
      delay(net, c, m + 1 == kMicroBatches);
      loss_of(net, inputs_of(rank.rank, m)).backward();
      EXPECT_EQ(events.take_counts(), expected_counts(c, m));
    }
    expect_gradients(net, expected_gradients(whole, rank.size, c));
  });
}

// Several forwards, then their backwards one by one, the shards gathered by hand (1F1B): the last
// backward alone reduces.
TEST(Accumulation, ManyForwardsThenTheirBackwards) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    FullyShardOptions options;
    options.reshard_after_forward = false;
    shard_blocks(net, mesh_of(rank), options);
    FsdpModule root = FsdpModule::of(net);
    EventRecorder events(net);
    root.set_reshard_after_backward(false);
    root.unshard(/*async_op=*/true);
    for (auto& block : net.blocks) FsdpModule::of(*block).unshard(/*async_op=*/true);
    std::vector<at::Tensor> losses;
    for (int m = 0; m < kMicroBatches; ++m) losses.push_back(loss_of(net, inputs_of(rank.rank, m)));
    for (int m = 0; m < kMicroBatches; ++m) {
      const bool is_last = m + 1 == kMicroBatches;
      root.set_is_last_backward(is_last);
      root.set_requires_gradient_sync(is_last);
      root.set_reshard_after_backward(is_last);
      losses[m].backward();
    }
    EXPECT_EQ(events.count("RS"), kBlocks + 1);
    expect_gradients(net, expected_gradients(whole, rank.size, {}));
    for (const auto& p : sharded_parameters(net)) {
      EXPECT_LT(p.tensor.local.size(0), p.tensor.shape[0]) << "still whole";
    }
  });
}

// While more backwards come, the last reduction of each stays under way; what it all-reduces is
// settled when it starts.
TEST(Accumulation, ReplicasExchangeOnceWhenTheLastBackwardIsMarked) {
  expect_ranks(4, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, hsdp_mesh_of(rank, 2));
    FsdpModule root = FsdpModule::of(net);
    EventRecorder events(net);
    const Case c{.replicas = true, .reduce_scatter_only = true};
    for (int m = 0; m < kMicroBatches; ++m) {
      const bool is_last = m + 1 == kMicroBatches;
      root.set_is_last_backward(is_last);
      root.set_requires_all_reduce(is_last);
      loss_of(net, inputs_of(rank.rank, m)).backward();
    }
    EXPECT_EQ(events.count("AR"), kBlocks + 1);
    expect_gradients(net, expected_gradients(whole, rank.size, c));
  });
}

// Gradients that wait are not lost when their unit does not run in the last micro batch.
TEST(Accumulation, AUnitThatTheLastMicroBatchDoesNotUse) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    FsdpModule root = FsdpModule::of(net);
    const auto second = [](Tower& tower, int r) {
      return tower.blocks[0](inputs_of(r, 1)).pow(2).mean();
    };
    root.set_requires_gradient_sync(false);
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    root.set_requires_gradient_sync(true);
    second(net, rank.rank).backward();
    for (int r = 0; r < rank.size; ++r) {
      loss_of(whole, inputs_of(r, 0)).backward();
      second(whole, r).backward();
    }
    for (const auto& p : whole.named_parameters()) p.tensor->mutable_grad().div_(rank.size);
    // Two batches of each rank are added before the ranks' sums here, one by one there: the last
    // bits of gradients below 16 in magnitude.
    expect_gradients(net, gradients(whole), 4e-6);
  });
}

TEST(Accumulation, GradientsThatAreThereAreAddedTo) {
  expect_ranks(2, [](const RankContext& rank) {
    Tower whole, net;
    shard_blocks(net, mesh_of(rank));
    for (auto& p : sharded_parameters(net)) {
      p.parameter.mutable_grad() = at::ones_like(p.parameter);
    }
    run_serially(whole, rank.size, 0, [](int r, int s) { return inputs_of(r, s); });
    loss_of(net, inputs_of(rank.rank, 0)).backward();
    Tensors expected;
    for (const auto& [name, grad] : gradients(whole)) expected[name] = 1 + grad;
    expect_gradients(net, expected);
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
