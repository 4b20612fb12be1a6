#include <fmt/format.h>

#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/device_mesh.h"

namespace shardloom::distributed {
namespace {

// Makes the groups of a rank, each list of ranks once.
class GroupMaker {
 public:
  explicit GroupMaker(World& world) : world_(world), made_{world.group()} {}

  std::shared_ptr<Group> make(const char* name,
                              const std::vector<int>& sizes,
                              const std::vector<int>& along) {
    std::vector<int> ranks = axis_ranks(sizes, along, world_.rank());
    for (const std::shared_ptr<Group>& group : made_) {
      if (group->ranks() == ranks) return group;
    }
    made_.push_back(world_.make_group(name, std::move(ranks)));
    return made_.back();
  }

 private:
  World& world_;
  std::vector<std::shared_ptr<Group>> made_;
};

}  // namespace

ParallelDims ParallelDims::from_sizes(
    int world, int fully_shard, int cp, int ep, int efsdp, int edp) {
  std::vector<std::string> problems;
  const auto require_positive = [&](const char* name, int value, int least) {
    if (value < least) problems.push_back(fmt::format("{} is {}", name, value));
  };
  require_positive("the world size", world, 1);
  require_positive("the fully-shard size", fully_shard, 1);
  require_positive("the context-parallel size", cp, 1);
  require_positive("the expert-parallel size", ep, 1);
  require_positive("the expert fully-shard size", efsdp, 0);
  require_positive("the expert data-parallel size", edp, 1);
  if (problems.empty()) {
    if (world % fully_shard != 0) {
      problems.push_back(fmt::format(
          "the world size {} is not a multiple of the fully-shard size {}", world, fully_shard));
    }
    if (fully_shard % cp != 0) {
      problems.push_back(
          fmt::format("the fully-shard size {} is not a multiple of the context-parallel size {}",
                      fully_shard, cp));
    }
    if (efsdp == 0) efsdp = std::max(1, world / (ep * edp));
    if (int64_t{edp} * efsdp * ep != world) {
      problems.push_back(
          fmt::format("expert data-parallel {} x expert fully-shard {} x expert-parallel {} is not "
                      "the world size {}",
                      edp, efsdp, ep, world));
    }
  }
  if (!problems.empty()) {
    throw ConfigError("parallel sizes: {}", shardloom::join(problems, "; "));
  }
  return {.world = world,
          .dp_replicate = world / fully_shard,
          .dp_shard = fully_shard / cp,
          .cp = cp,
          .ep = ep,
          .efsdp = efsdp,
          .edp = edp};
}

ParallelMeshes ParallelMeshes::make(World& world, const ParallelDims& dims, c10::Device device) {
  SHARDLOOM_CHECK(dims.world == world.size(), "sizes for {} ranks in a world of {}", dims.world,
                  world.size());
  GroupMaker maker(world);
  const std::vector<int> main = {dims.dp_replicate, dims.dp_shard, dims.cp};
  const std::vector<int> expert = {dims.edp, dims.efsdp, dims.ep};
  const auto shard_mesh = [&](const char* replicas, const std::shared_ptr<Group>& replica_group,
                              const char* shards, const std::shared_ptr<Group>& shard_group) {
    std::vector<MeshAxis> axes;
    if (replica_group->size() > 1) axes.push_back({replicas, replica_group});
    axes.push_back({shards, shard_group});
    return std::make_shared<const DeviceMesh>(std::move(axes), device);
  };
  ParallelMeshes meshes;
  meshes.dims = dims;
  meshes.world = world.group();
  meshes.data_parallel = maker.make("data_parallel", main, {0, 1});
  meshes.context_parallel = maker.make("context_parallel", main, {2});
  const auto dp_replicate = maker.make("dp_replicate", main, {0});
  const auto dp_shard_cp = maker.make("dp_shard_cp", main, {1, 2});
  meshes.fully_shard = shard_mesh("dp_replicate", dp_replicate, "dp_shard_cp", dp_shard_cp);
  meshes.expert_parallel = maker.make("expert_parallel", expert, {2});
  const auto edp = maker.make("edp", expert, {0});
  const auto efsdp = maker.make("efsdp", expert, {1});
  meshes.expert_fully_shard = shard_mesh("edp", edp, "efsdp", efsdp);
  return meshes;
}

}  // namespace shardloom::distributed
