// Rank lists of meshes, worked out by hand, and the groups of a training run.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/distributed/device_mesh.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Ranks = std::vector<int>;

std::string config_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return "";
}

ParallelMeshes meshes_of(int rank, const ParallelDims& dims) {
  return ParallelMeshes::make(*World::fake(rank, dims.world), dims);
}

TEST(DeviceMesh, AxesAreRowMajorSlowestFirst) {
  const auto world = World::fake(7, 12);
  const DeviceMesh mesh(*world, {{"a", 2}, {"b", 3}, {"c", 2}});
  // 7 = 1 * 6 + 0 * 2 + 1.
  EXPECT_EQ(mesh.group("a")->ranks(), (Ranks{1, 7}));
  EXPECT_EQ(mesh.group("a")->rank(), 1);
  EXPECT_EQ(mesh.group("b")->ranks(), (Ranks{7, 9, 11}));
  EXPECT_EQ(mesh.group("b")->rank(), 0);
  EXPECT_EQ(mesh.group("c")->ranks(), (Ranks{6, 7}));
  EXPECT_EQ(mesh.group("c")->rank(), 1);
  EXPECT_EQ(mesh.size(), 12);
  EXPECT_EQ(mesh.num_axes(), 3);
  EXPECT_EQ(mesh.axis(1).name, "b");
  EXPECT_EQ(mesh.describe(), "a 2 x b 3 x c 2");
  EXPECT_EQ(mesh.group("a")->backend_name(), "fake");
}

TEST(DeviceMesh, WrongAxes) {
  const auto world = World::fake(0, 4);
  EXPECT_THAT(config_error([&] {
                DeviceMesh(*world, {{"a", 2}, {"b", 3}});
              }),
              HasSubstr("a 2 x b 3 has 6 ranks, but the world has 4"));
  EXPECT_THAT(config_error([&] {
                DeviceMesh(*world, {{"a", 2}, {"a", 2}});
              }),
              HasSubstr("the name a twice"));
  EXPECT_THAT(config_error([&] {
                DeviceMesh(*world, {{"a", 4}, {"b", 0}});
              }),
              HasSubstr("axis b of a device mesh has the size 0"));
  EXPECT_THAT(config_error([] { DeviceMesh(std::vector<MeshAxis>{}); }),
              HasSubstr("at least one axis"));
  const DeviceMesh mesh(*world, {{"dp_shard", 4}});
  EXPECT_THAT(config_error([&] { mesh.group("dp_shrd"); }),
              AllOf(HasSubstr("dp_shard 4 has no axis 'dp_shrd'"), HasSubstr("did you mean")));
}

TEST(ParallelDims, FromTheSizesOfAConfiguration) {
  const ParallelDims dims = ParallelDims::from_sizes(8, 4, 2, 4, 0, 1);
  EXPECT_EQ(dims.dp_replicate, 2);
  EXPECT_EQ(dims.dp_shard, 2);
  EXPECT_EQ(dims.cp, 2);
  EXPECT_EQ(dims.edp, 1);
  EXPECT_EQ(dims.efsdp, 2);
  EXPECT_EQ(dims.ep, 4);
  EXPECT_EQ(dims.data_parallel(), 4);
}

TEST(ParallelDims, AllBrokenRulesAtOnce) {
  EXPECT_THAT(
      config_error([] { ParallelDims::from_sizes(8, 3, 2, 3, 0, 1); }),
      AllOf(HasSubstr("the world size 8 is not a multiple of the fully-shard size 3"),
            HasSubstr("the fully-shard size 3 is not a multiple of the context-parallel size 2"),
            HasSubstr("1 x expert fully-shard 2 x expert-parallel 3 is not the world size 8")));
  EXPECT_THAT(
      config_error([] { ParallelDims::from_sizes(8, 0, 1, 1, -1, 0); }),
      AllOf(HasSubstr("the fully-shard size is 0"), HasSubstr("the expert fully-shard size is -1"),
            HasSubstr("the expert data-parallel size is 0"), Not(HasSubstr("world"))));
}

TEST(ParallelMeshes, OneRankHasOneGroup) {
  const ParallelMeshes meshes = meshes_of(0, {});
  for (const auto& group :
       {meshes.data_parallel, meshes.context_parallel, meshes.expert_parallel,
        meshes.fully_shard->group("dp_shard_cp"), meshes.expert_fully_shard->group("efsdp")}) {
    EXPECT_EQ(group, meshes.world);
  }
  EXPECT_EQ(meshes.world->ranks(), Ranks{0});
  EXPECT_EQ(meshes.fully_shard->num_axes(), 1);
}

// The example of spec 2.2: with cp 2 both ranks are one cp group, and parameters shard over it.
TEST(ParallelMeshes, TwoRanksContextAndExpertParallel) {
  for (int rank = 0; rank < 2; ++rank) {
    const ParallelMeshes meshes = meshes_of(rank, ParallelDims::from_sizes(2, 2, 2, 2, 0, 1));
    EXPECT_EQ(meshes.context_parallel, meshes.world);
    EXPECT_EQ(meshes.expert_parallel, meshes.world);
    EXPECT_EQ(meshes.fully_shard->group("dp_shard_cp"), meshes.world);
    EXPECT_EQ(meshes.data_parallel->ranks(), Ranks{rank});
    EXPECT_EQ(meshes.expert_fully_shard->group("efsdp")->ranks(), Ranks{rank});
    // The same ranks: one group.
    EXPECT_EQ(meshes.expert_fully_shard->group("efsdp"), meshes.data_parallel);
  }
}

TEST(ParallelMeshes, FourRanksWithTwoContextParallel) {
  // (dp_replicate 1, dp_shard 2, cp 2); experts (edp 1, efsdp 4, ep 1).
  const ParallelMeshes meshes = meshes_of(2, ParallelDims::from_sizes(4, 4, 2, 1, 0, 1));
  EXPECT_EQ(meshes.data_parallel->ranks(), (Ranks{0, 2}));
  EXPECT_EQ(meshes.context_parallel->ranks(), (Ranks{2, 3}));
  EXPECT_EQ(meshes.fully_shard->describe(), "dp_shard_cp 4");
  EXPECT_EQ(meshes.expert_parallel->ranks(), Ranks{2});
  EXPECT_EQ(meshes.expert_fully_shard->group("efsdp"), meshes.world);
}

TEST(ParallelMeshes, EightRanksOfEveryKind) {
  // (dp_replicate 2, dp_shard 2, cp 2) and (edp 2, efsdp 2, ep 2); 5 = (1, 0, 1).
  const ParallelMeshes meshes = meshes_of(5, ParallelDims::from_sizes(8, 4, 2, 2, 2, 2));
  EXPECT_EQ(meshes.world->ranks(), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(meshes.data_parallel->ranks(), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(meshes.data_parallel->rank(), 2);
  EXPECT_EQ(meshes.context_parallel->ranks(), (Ranks{4, 5}));
  EXPECT_EQ(meshes.fully_shard->num_axes(), 2);
  EXPECT_EQ(meshes.fully_shard->axis(0).name, "dp_replicate");
  EXPECT_EQ(meshes.fully_shard->group("dp_replicate")->ranks(), (Ranks{1, 5}));
  EXPECT_EQ(meshes.fully_shard->group("dp_shard_cp")->ranks(), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(meshes.expert_parallel->ranks(), (Ranks{4, 5}));
  EXPECT_EQ(meshes.expert_parallel, meshes.context_parallel);
  EXPECT_EQ(meshes.expert_fully_shard->axis(0).name, "edp");
  EXPECT_EQ(meshes.expert_fully_shard->group("edp")->ranks(), (Ranks{1, 5}));
  EXPECT_EQ(meshes.expert_fully_shard->group("efsdp")->ranks(), (Ranks{5, 7}));
}

TEST(ParallelMeshes, TwelveRanks) {
  // (dp_replicate 2, dp_shard 3, cp 2); experts (edp 1, efsdp 3, ep 4); 8 = (1, 1, 0) = (0, 2, 0).
  const ParallelMeshes meshes = meshes_of(8, ParallelDims::from_sizes(12, 6, 2, 4, 0, 1));
  EXPECT_EQ(meshes.data_parallel->ranks(), (Ranks{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(meshes.context_parallel->ranks(), (Ranks{8, 9}));
  EXPECT_EQ(meshes.fully_shard->group("dp_replicate")->ranks(), (Ranks{2, 8}));
  EXPECT_EQ(meshes.fully_shard->group("dp_shard_cp")->ranks(), (Ranks{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(meshes.expert_parallel->ranks(), (Ranks{8, 9, 10, 11}));
  EXPECT_EQ(meshes.expert_fully_shard->group("efsdp")->ranks(), (Ranks{0, 4, 8}));
  EXPECT_EQ(meshes.expert_fully_shard->num_axes(), 1);
}

// Each group adds 2^rank of its members, whichever backend it has.
void expect_right_ranks(Group& group) {
  int64_t expected = 0;
  for (const int rank : group.ranks()) expected += int64_t{1} << rank;
  at::Tensor tensor = at::full({1}, int64_t{1} << group.log()->world_rank(), at::kLong);
  group.all_reduce(tensor, Reduction::kSum).wait();
  EXPECT_EQ(tensor.item<int64_t>(), expected) << group.name();
}

class RealMeshes : public ::testing::TestWithParam<BackendKind> {};
INSTANTIATE_TEST_SUITE_P(Backends,
                         RealMeshes,
                         ::testing::Values(BackendKind::kAuto, BackendKind::kGloo));

TEST_P(RealMeshes, EachGroupOfFourRanksSumsItsOwn) {
  for (const ParallelDims& dims :
       {ParallelDims::from_sizes(4, 2, 2, 2, 2, 1), ParallelDims::from_sizes(4, 4, 2, 1, 2, 2)}) {
    expect_ranks(4, [&](const RankContext& c) {
      const auto world = World::over(c.store, c.rank, c.size, GetParam());
      const ParallelMeshes meshes = ParallelMeshes::make(*world, dims);
      std::vector<std::shared_ptr<Group>> groups = {
          meshes.world, meshes.data_parallel, meshes.context_parallel, meshes.expert_parallel};
      for (const auto& mesh : {meshes.fully_shard, meshes.expert_fully_shard}) {
        for (int axis = 0; axis < mesh->num_axes(); ++axis)
          groups.push_back(mesh->axis(axis).group);
      }
      for (const auto& group : groups) expect_right_ranks(*group);
      world->group()->barrier();
    });
  }
}

TEST(World, AloneIsAWorldOfOne) {
  const auto world = World::alone();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->group()->backend_name(), "shm");
  expect_right_ranks(*world->group());
  const auto group = world->make_group("other", {0});
  expect_right_ranks(*group);
}

TEST(World, TheSameNameForDisjointGroupsButNotTwiceForOne) {
  expect_ranks(2, [](const RankContext& c) {
    const auto world = World::over(c.store, c.rank, c.size, BackendKind::kShm);
    expect_right_ranks(*world->make_group("single", {c.rank}));
    EXPECT_THROW(world->make_group("single", {c.rank}), InternalError);
    EXPECT_THROW(world->make_group("others", {1 - c.rank}), InternalError);
    world->group()->barrier();
  });
}

}  // namespace
}  // namespace shardloom::distributed::testing
