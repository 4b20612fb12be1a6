// Bytes of tensors, counted: what is kept, and how much at most is gathered at any time.
#include "shardloom/trainer/memory_counter.h"
#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

constexpr int kBlocks = 10;
constexpr int64_t kDim = 32;
constexpr int64_t kHidden = 97;  // rows that two ranks do not share evenly

int64_t in_use() { return trainer::cpu_memory_use().allocated; }
int64_t peak() { return trainer::cpu_memory_use().max_allocated; }

// Of all parameters with padding, on all ranks together.
int64_t padded_bytes(nn::Module& whole, int ranks) {
  int64_t sum = 0;
  for (const auto& p : whole.named_parameters()) {
    const int64_t rows = p.tensor->size(0);
    sum += (rows + ranks - 1) / ranks * ranks * (p.tensor->numel() / rows) * 4;
  }
  return sum;
}

struct Sizes {
  int64_t block, root, all;
};

Sizes sizes_of(int ranks) {
  Tower whole(1, kDim, kHidden);
  const int64_t block = padded_bytes(whole.blocks[0], ranks);
  const int64_t root = padded_bytes(whole.head, ranks);
  return {block, root, kBlocks * block + root};
}

// A sharded Tower and the bytes that were in use before it.
struct Model {
  Model(const RankContext& rank, const FullyShardOptions& options) {
    trainer::install_memory_counter();
    sizes = sizes_of(rank.size);
    world = world_of(rank);
    const auto mesh = std::make_shared<const DeviceMesh>(
        std::vector<distributed::MeshAxis>{{"dp_shard", world->group()}});
    FullyShardOptions block_options = options;
    block_options.world = world;
    inputs = inputs_of(rank.rank, 0, kDim);
    before = settled();
    net = std::make_unique<Tower>(kBlocks, kDim, kHidden);
    for (auto& block : net->blocks) fully_shard(*block, mesh, block_options);
    fully_shard(*net, mesh);
  }
  // A group's thread may hold the last collective's tensors until the next one comes.
  int64_t settled() const {
    world->group()->barrier();
    return in_use();
  }
  int64_t own() const { return settled() - before; }

  std::shared_ptr<World> world;
  Sizes sizes;
  at::Tensor inputs;
  int64_t before;
  std::unique_ptr<Tower> net;
};

// Bytes that the same forward and backward need above parameters and gradients without sharding.
int64_t activations() {
  Tower whole(kBlocks, kDim, kHidden);
  const at::Tensor x = inputs_of(0, 0, kDim);
  loss_of(whole, x).backward();
  const int64_t kept = in_use();
  trainer::reset_peak_memory();
  const at::Tensor loss = loss_of(whole, x);
  return peak() - kept;
}

TEST(Memory, ShardsAreOneNthAndNothingElseIsKept) {
  for (const int ranks : {2, 3}) {
    expect_ranks(ranks, [](const RankContext& rank) {
      Model s(rank, {});
      const int64_t shards = s.sizes.all / rank.size;
      EXPECT_EQ(s.own(), shards);
      for (int step = 0; step < 2; ++step) {
        loss_of(*s.net, s.inputs).backward();
        EXPECT_EQ(s.own(), 2 * shards);  // and their gradients
        step_sharded(*s.net);
        EXPECT_EQ(s.own(), shards);
      }
      {
        const at::NoGradGuard no_grad;
        (*s.net)(s.inputs);
      }
      EXPECT_EQ(s.own(), shards + s.sizes.root);  // which stays for backward
      FsdpModule::of(*s.net).reshard();
      EXPECT_EQ(s.own(), shards);
    });
  }
}

int64_t kept_after_forward(const RankContext& rank, const ReshardAfterForward& reshard) {
  FullyShardOptions options;
  options.reshard_after_forward = reshard;
  Model s(rank, options);
  const at::Tensor loss = loss_of(*s.net, s.inputs);
  return s.own();
}

// The graph refers to the weights, but their memory is gone.
TEST(Memory, WeightsAreFreedAfterForward) {
  expect_ranks(4, [](const RankContext& rank) {
    const int64_t freed = kept_after_forward(rank, true);
    const Sizes sizes = sizes_of(rank.size);
    EXPECT_EQ(kept_after_forward(rank, false) - freed, kBlocks * sizes.block);
    EXPECT_EQ(kept_after_forward(rank, 2) - freed, kBlocks * sizes.block / 2);
    EXPECT_EQ(kept_after_forward(rank, {}), freed);
  });
}

TEST(Memory, ForwardGathersOneUnitBesidesTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Model s(rank, {});
    loss_of(*s.net, s.inputs).backward();
    step_sharded(*s.net);
    const int64_t extra = activations();
    const int64_t start = s.settled();
    trainer::reset_peak_memory();
    {
      const at::NoGradGuard no_grad;
      (*s.net)(s.inputs);
    }
    // The unit, and while it is gathered its wire, which is as large.
    EXPECT_LE(peak() - start, s.sizes.root + 2 * s.sizes.block + extra);
    EXPECT_GE(peak() - start, s.sizes.root + s.sizes.block);
  });
}

TEST(Memory, BackwardGathersTwoUnitsBesidesTheRoot) {
  expect_ranks(2, [](const RankContext& rank) {
    Model s(rank, {});
    loss_of(*s.net, s.inputs).backward();
    step_sharded(*s.net);
    const int64_t extra = activations();
    const int64_t start = s.settled();
    trainer::reset_peak_memory();
    loss_of(*s.net, s.inputs).backward();
    // Two units gathered or on the wire (the copy-out of one needs its size twice), the gradients
    // of one, the reduce-scatter input of the one before, and all gradient shards.
    const int64_t bound =
        s.sizes.root + 3 * s.sizes.block + 2 * s.sizes.block + s.sizes.all / 2 + extra;
    EXPECT_LE(peak() - start, bound);
    EXPECT_LT(bound, s.sizes.all + s.sizes.all / 2);  // what the whole model would take
  });
}

TEST(Memory, EachPrefetchedUnitIsGatheredAhead) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto forward_peak = [&](int ahead) {
      Model s(rank, {});
      for (int i = 0; i + ahead < kBlocks && ahead > 0; ++i)
        FsdpModule::of(s.net->blocks[i])
            .set_modules_to_forward_prefetch({&s.net->blocks[i + ahead]});
      const at::NoGradGuard no_grad;
      (*s.net)(s.inputs);
      FsdpModule::of(*s.net).reshard();
      const int64_t start = s.settled();
      trainer::reset_peak_memory();
      (*s.net)(s.inputs);
      return peak() - start;
    };
    // Without prefetch one unit is gathered and copied out of its wire; four ahead, three more are
    // there. The group's thread may hold one wire for a moment longer, and the two peaks may see
    // different activations, which are smaller than a unit.
    const int64_t more = forward_peak(4) - forward_peak(0);
    EXPECT_GE(more, 2 * sizes_of(rank.size).block);
    EXPECT_LE(more, 5 * sizes_of(rank.size).block);
  });
}

// At the start of each reduction only the one before may still hold its input.
// At the start of each reduction the input of the one before is gone; its output is the gradients.
TEST(Memory, ReduceInputsAreFreedWhenTheyAreSent) {
  expect_ranks(2, [](const RankContext& rank) {
    FullyShardOptions options;
    options.reshard_after_forward = false;  // no gathers in between
    Model s(rank, options);
    std::vector<int64_t> used;
    FsdpModule::of(*s.net).set_event_listener([&](const UnitEvent& e) {
      if (e.action == UnitAction::kReduceScatter && e.unit != "(root)") used.push_back(in_use());
    });
    loss_of(*s.net, s.inputs).backward();
    ASSERT_EQ(used.size(), kBlocks);
    // From one to the next the unit is freed and half of its gradients stay. Any one of the inputs
    // may be gone already when it is looked at, but not more than one is there.
    const int64_t steps = kBlocks - 2;
    EXPECT_LE(used[used.size() - 2] - used[0],
              steps * (s.sizes.block / rank.size - s.sizes.block) + s.sizes.block);
  });
}

TEST(Memory, AccumulationKeepsWholeGradients) {
  expect_ranks(2, [](const RankContext& rank) {
    Model s(rank, {});
    const int64_t shards = s.sizes.all / rank.size;
    Tower whole(kBlocks, kDim, kHidden);
    int64_t whole_bytes = 0;
    for (const auto& p : whole.named_parameters()) whole_bytes += p.tensor->numel() * 4;
    const int64_t start = s.settled();
    FsdpModule::of(*s.net).set_requires_gradient_sync(false);
    for (int m = 0; m < 2; ++m) {
      loss_of(*s.net, s.inputs).backward();
      EXPECT_EQ(s.settled() - start, whole_bytes);
    }
    FsdpModule::of(*s.net).set_requires_gradient_sync(true);
    loss_of(*s.net, s.inputs).backward();
    EXPECT_EQ(s.settled() - start, shards);
  });
}

TEST(Memory, AFailedStepLeavesNothing) {
  expect_ranks(2, [](const RankContext& rank) {
    Model s(rank, {});
    const int64_t start = s.settled();
    EXPECT_ANY_THROW((*s.net)(at::ones({4, kDim + 1})));
    EXPECT_EQ(s.settled(), start);
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
