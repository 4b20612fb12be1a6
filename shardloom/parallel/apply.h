// Applies a plan of units to a model (the fsdp_plan of the YAML file, with its patterns resolved to
// names of modules).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/parallel/fully_shard.h"

namespace shardloom::parallel {

struct ShardingPlan {
  // Modules that become units, in the order in which they are prefetched. What they leave belongs
  // to the root unit.
  std::vector<std::string> units;
  // Units that are cut over another mesh (experts). They are gathered with the unit around them.
  std::vector<std::string> expert_units;
  std::shared_ptr<const distributed::DeviceMesh> expert_mesh;
  std::vector<std::string> ignored;  // modules whose parameters stay whole and in no unit
  // A unit below one of these is gathered and freed around its calls instead of its own.
  std::vector<std::string> hooks;
  // Units whose backward reads no parameter (their gradients are made in forward); not gathered
  // there. Names that are no units are left alone.
  std::vector<std::string> forward_only;
  FullyShardOptions options;
  int forward_prefetch = 0;   // units gathered ahead; 0: none
  int backward_prefetch = 0;  // 0: the unit before in the order of execution
  // Modules in the order in which forward reaches them (models::Model::execution_order()).
  std::vector<std::string> execution_order;
  // For losses normalised over the global batch: gradients are summed over ranks.
  bool sum_gradients = true;
};

// The steps of apply(), for programs that choose units of their own in between.
// The first: parameters of the modules that the plan ignores become ignored ones of its options.
void ignore_parameters(nn::Module& root, ShardingPlan& plan);
// Experts become units of their mesh.
void shard_experts(nn::Module& root, const ShardingPlan& plan);
// Units children first, then the root. output_dtype is the root's alone (an inner unit's output
// goes on to modules that compute in param_dtype).
void shard_units(nn::Module& root,
                 const std::shared_ptr<const distributed::DeviceMesh>& mesh,
                 const ShardingPlan& plan);
void set_prefetch(nn::Module& root, const ShardingPlan& plan);
// The sums of gradients and the order of all units below the root, which is one itself. The last
// one in the order of execution that backward reads stays gathered between forward and backward.
FsdpModule set_up_root(nn::Module& root, const ShardingPlan& plan);

// All of these. Throws ConfigError for a name that no module has.
FsdpModule apply(nn::Module& root,
                 const std::shared_ptr<const distributed::DeviceMesh>& mesh,
                 const ShardingPlan& plan);

}  // namespace shardloom::parallel
