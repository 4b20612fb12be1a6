// Parameters that several modules have in common.
#include <gmock/gmock.h>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Net whose head is the transposed embedding; 101 rows never divide evenly.
class TiedNet : public Net {
 public:
  TiedNet() { head.weight = embed.weight; }
};

at::Tensor loss_of(TiedNet& net, const at::Tensor& ids) {
  return loss_of(static_cast<Net&>(net), ids);
}

void expect_tied_parity(const RankContext& rank, const FullyShardOptions& options) {
  TiedNet whole, net;
  shard_blocks(net, mesh_of(rank), options);
  EXPECT_TRUE(net.embed.weight.is_same(net.head.weight));
  const at::Tensor before = whole.embed.weight.detach().clone();
  for (int step = 0; step < 4; ++step)
    expect_same_step(whole, net, rank, step, [](int r, int s) { return ids_of(r, s); });
  EXPECT_TRUE(net.embed.weight.is_same(net.head.weight));
  const auto params = sharded_parameters(net);
  EXPECT_EQ(params.size(), whole.named_parameters().size() - 1);
  // The softmax over the vocabulary moves every row, on every rank.
  const auto& tied = params[0].tensor;
  ASSERT_EQ(tied.name, "embed.weight");
  ASSERT_GT(tied.local.size(0), 0);
  const at::Tensor moved = (tied.local - before.narrow(0, tied.first_row, tied.local.size(0)));
  EXPECT_EQ(moved.abs().amax(1).count_nonzero().item<int64_t>(), tied.local.size(0));
}

TEST(SharedParams, TiedWithinAUnit) {
  for (const int ranks : {2, 3, 4})
    expect_ranks(ranks, [](const RankContext& rank) { expect_tied_parity(rank, {}); });
}

TEST(SharedParams, TiedWithinAUnitThatReshards) {
  expect_ranks(2, [](const RankContext& rank) {
    FullyShardOptions options;
    options.reshard_after_forward = true;
    expect_tied_parity(rank, options);
  });
}

TEST(SharedParams, TiedModulesInOneList) {
  expect_ranks(2, [](const RankContext& rank) {
    TiedNet whole, net;
    const auto mesh = mesh_of(rank);
    for (auto& block : net.blocks) fully_shard(*block, mesh);
    fully_shard({&net.embed, &net.head}, mesh);
    fully_shard(net, mesh);
    for (int step = 0; step < 3; ++step)
      expect_same_step(whole, net, rank, step, [](int r, int s) { return ids_of(r, s); });
  });
}

TEST(SharedParams, TiedAcrossUnitsIsRefusedByBothNames) {
  expect_ranks(2, [](const RankContext& rank) {
    TiedNet net;
    const auto mesh = mesh_of(rank);
    FullyShardOptions options;
    options.name = "embed";
    fully_shard(net.embed, mesh, options);
    options.name = "head";
    EXPECT_THAT(config_error([&] { fully_shard(net.head, mesh, options); }),
                AllOf(HasSubstr("head.weight"), HasSubstr("embed.weight"), HasSubstr("one call")));
    // The root would take the head.
    EXPECT_THAT(config_error([&] { fully_shard(net, mesh); }),
                AllOf(HasSubstr("head.weight"), HasSubstr("embed.weight")));
    EXPECT_FALSE(FsdpModule::is_sharded(net));
  });
}

TEST(SharedParams, TiedAfterShardingIsRefused) {
  expect_ranks(2, [](const RankContext& rank) {
    Net net;
    const auto mesh = mesh_of(rank);
    fully_shard(net.embed, mesh);
    net.head.weight = net.embed.weight;
    EXPECT_THAT(config_error([&] { fully_shard(net.head, mesh); }), HasSubstr("tied"));
  });
}

// One module inside two others that become units.
class Holder : public nn::Callable<Holder> {
 public:
  explicit Holder(nn::Linear& shared) { register_module("shared", shared); }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

TEST(SharedParams, AModuleInsideTwoUnitsIsRefused) {
  expect_ranks(2, [](const RankContext& rank) {
    nn::Linear linear(5, 5, true, at::TensorOptions().dtype(at::kFloat));
    Holder first(linear), second(linear);
    const auto mesh = mesh_of(rank);
    fully_shard(first, mesh);
    EXPECT_THAT(config_error([&] { fully_shard(second, mesh); }), HasSubstr("shared.weight"));
  });
}

// Memory that comes back from one layer is not mistaken for a tie of the next.
TEST(SharedParams, LayerByLayerIsNoTie) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto mesh = mesh_of(rank);
    nn::ModuleList<Block> blocks;
    for (int i = 0; i < 20; ++i) fully_shard(blocks.emplace_back(8, 8), mesh);
    for (int i = 0; i < 20; ++i) {
      Block passing(8, 8);
      fully_shard(passing, mesh);
    }
  });
}

TEST(SharedParams, PartsOfOneBufferAreNoTie) {
  expect_ranks(2, [](const RankContext& rank) {
    const at::Tensor buffer = at::arange(12, at::kFloat);
    Weights first({buffer.narrow(0, 0, 6).requires_grad_()});
    Weights second({buffer.narrow(0, 6, 6).requires_grad_()});
    Weights third({buffer.narrow(0, 4, 4).requires_grad_()});
    const auto mesh = mesh_of(rank);
    fully_shard(first, mesh);
    fully_shard(second, mesh);
    EXPECT_THAT(config_error([&] { fully_shard(third, mesh); }), HasSubstr("tied"));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
