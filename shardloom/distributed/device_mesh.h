// A grid of ranks with named axes (torch.distributed.device_mesh.DeviceMesh), and the meshes of a
// training run (MindSpeed-MM distributed/parallel_state.py).
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/distributed/world.h"

namespace shardloom::distributed {

// World ranks of a row-major grid that `rank` reaches along some of its axes (`along`, slowest
// first), in row-major order.
std::vector<int> axis_ranks(const std::vector<int>& sizes, const std::vector<int>& along, int rank);

struct MeshAxis {
  std::string name;
  std::shared_ptr<Group> group;  // the ranks along this axis that this process belongs to
};

class DeviceMesh {
 public:
  // Axes slowest first. Throws ConfigError for no axis or a name used twice.
  explicit DeviceMesh(std::vector<MeshAxis> axes, c10::Device device = c10::Device(c10::kCPU));
  // Collective: the ranks 0 .. product - 1 of the world in row-major order. Throws ConfigError when
  // the product of the sizes is not the world's size.
  DeviceMesh(World& world,
             const std::vector<std::pair<std::string, int>>& axes,
             c10::Device device = c10::Device(c10::kCPU));

  int num_axes() const { return static_cast<int>(axes_.size()); }
  const MeshAxis& axis(int index) const { return axes_.at(index); }
  // The group of the axis with this name; throws ConfigError naming the axes there are.
  const std::shared_ptr<Group>& group(const std::string& name) const;
  int64_t size() const;  // ranks in all
  c10::Device device() const { return device_; }
  std::string describe() const;  // "dp_replicate 2 x dp_shard_cp 4"

 private:
  std::vector<MeshAxis> axes_;
  c10::Device device_;
};

// Sizes of the axes. world = dp_replicate * dp_shard * cp, and also edp * efsdp * ep.
struct ParallelDims {
  int world = 1;
  int dp_replicate = 1;
  int dp_shard = 1;
  int cp = 1;
  int ep = 1;
  int efsdp = 1;
  int edp = 1;

  // The sizes of a resolved configuration: fully_shard = dp_shard * cp. `efsdp` 0 derives it.
  // Throws one ConfigError that lists every rule that is broken.
  static ParallelDims from_sizes(int world, int fully_shard, int cp, int ep, int efsdp, int edp);

  int data_parallel() const { return dp_replicate * dp_shard; }
};

// The groups of one rank. Main grid (dp_replicate, dp_shard, cp), cp fastest; expert grid (edp,
// efsdp, ep), ep fastest.
struct ParallelMeshes {
  ParallelDims dims;
  std::shared_ptr<Group> world;
  std::shared_ptr<Group> data_parallel;  // dp_replicate x dp_shard: ranks with different samples
  std::shared_ptr<Group> context_parallel;
  std::shared_ptr<Group> expert_parallel;
  // What fully_shard takes: (dp_shard_cp), or (dp_replicate, dp_shard_cp) when replicas exist.
  std::shared_ptr<const DeviceMesh> fully_shard;
  // The same for experts: (efsdp), or (edp, efsdp).
  std::shared_ptr<const DeviceMesh> expert_fully_shard;

  // Collective over the world; groups of the same ranks are made once.
  static ParallelMeshes make(World& world,
                             const ParallelDims& dims,
                             c10::Device device = c10::Device(c10::kCPU));
};

}  // namespace shardloom::distributed
