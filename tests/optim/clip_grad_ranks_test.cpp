// The gradient norm over real ranks and several meshes.
#include <gtest/gtest.h>

#include <bit>

#include "shardloom/distributed/world.h"
#include "shardloom/optim/clip_grad.h"
#include "tests/distributed/ranks.h"
#include "tests/optim/sample_gradients.h"

namespace shardloom::optim {
namespace {

using distributed::BackendKind;
using distributed::World;
using distributed::testing::expect_ranks;
using distributed::testing::RankContext;
using testing::sample_gradients;
using testing::shard_of;

// Odd tensors belong to another mesh, as experts do; the last one is whole everywhere.
std::vector<GradientShards> sets_of(const std::shared_ptr<distributed::Group>& group,
                                    const std::shared_ptr<distributed::Group>& other_group) {
  const auto shards = shard_of(sample_gradients(), group->rank(), group->size());
  const auto others = shard_of(sample_gradients(), other_group->rank(), other_group->size());
  return {{{shards[0], shards[2]}, group},
          {{others[1], others[3]}, other_group},
          {{shards[4]}, group},
          {{sample_gradients()[5]}, nullptr}};
}

void expect_whole_norm(const std::vector<GradientShards>& sets) {
  EXPECT_EQ(std::bit_cast<uint64_t>(squared_norm(sets)),
            std::bit_cast<uint64_t>(squared_norm(sample_gradients()).value()));
}

TEST(ClipGradRanks, TwoMeshesOfTheSameRanks) {
  for (const BackendKind backend : {BackendKind::kShm, BackendKind::kGloo}) {
    expect_ranks(2, [&](const RankContext& context) {
      const auto world = World::over(context.store, context.rank, context.size, backend);
      expect_whole_norm(sets_of(world->group(), world->make_group("experts", {0, 1})));
    });
  }
}

TEST(ClipGradRanks, ReplicasDoNotCountTwice) {
  expect_ranks(4, [](const RankContext& context) {
    const auto world = World::over(context.store, context.rank, context.size, BackendKind::kAuto);
    const int first = context.rank / 2 * 2;
    const auto shard = world->make_group("shard", {first, first + 1});
    expect_whole_norm(sets_of(shard, world->group()));
  });
}

TEST(ClipGradRanks, ANonFiniteGradientOfOneRankShowsOnAll) {
  expect_ranks(2, [](const RankContext& context) {
    const auto world = World::over(context.store, context.rank, context.size, BackendKind::kAuto);
    at::Tensor grad = at::ones({2, 3});
    if (context.rank == 1) grad[1][2] = NAN;
    EXPECT_TRUE(std::isnan(squared_norm({GradientShards{{{"a", grad, grad}}, world->group()}})));
  });
}

}  // namespace
}  // namespace shardloom::optim
