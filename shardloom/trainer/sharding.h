// The parallel part of a run: from the configuration to meshes and units, and the sharded
// parameters as the optimizer, the gradient norm and checkpoints want them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/config/load.h"
#include "shardloom/distributed/device_mesh.h"
#include "shardloom/features/apply.h"
#include "shardloom/models/model.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/clip_grad.h"
#include "shardloom/parallel/apply.h"
#include "shardloom/trainer/expert_load.h"

namespace shardloom::trainer {

// Of a configuration resolved for a world; throws one ConfigError that lists every broken rule.
distributed::ParallelDims parallel_dims(const config::ParallelConfig& parallel, int world_size);

// The fsdp_plan and the ep_plan with their patterns matched against the model.
parallel::ShardingPlan sharding_plan(const config::TrainConfig& config,
                                     models::Model& model,
                                     const distributed::ParallelMeshes& meshes);
// The features section likewise.
features::FeaturePlan feature_plan(const config::TrainConfig& config, models::Model& model);

// Cuts experts and sequences, the first part of make_parallel(); the loads of all experts.
std::unique_ptr<ExpertLoads> cut_model(const config::TrainConfig& config,
                                       models::Model& model,
                                       const distributed::ParallelMeshes& meshes);

// Cuts experts and sequences, adds the features and shards what is left, in the order in which the
// wrappers must stand. The model is on the meta device. The offload for its counters, null without.
struct ParallelModel {
  parallel::FsdpModule sharded;
  std::unique_ptr<features::ActivationOffload> offload;
  std::unique_ptr<ExpertLoads> expert_loads;
};
ParallelModel make_parallel(const config::TrainConfig& config,
                            models::Model& model,
                            const distributed::ParallelMeshes& meshes);

// sharded_parameters() with the experts as parts of all ranks' experts. `experts`: the ranks that
// together hold all experts once, expert-parallel index first; null without expert parallelism.
std::vector<parallel::ShardedParameter> whole_parameters(
    const config::TrainConfig& config,
    models::Model& model,
    const distributed::ParallelMeshes& meshes,
    const std::shared_ptr<distributed::Group>& experts);
// World ranks of that group, for this process.
std::vector<int> expert_owners(const distributed::ParallelDims& dims, int rank);

// A warning when the written order of fsdp_plan.apply_modules is not the one in which the units
// ran; "" otherwise.
std::string unit_order_warning(const config::TrainConfig& config,
                               models::Model& model,
                               const std::vector<std::string>& ran);

enum class WeightDecay { kAll, kMatrices };  // kMatrices: not of biases and norms (Megatron-LM)

// Trained parameters with their gradients: local rows, always in the same order.
std::vector<optim::OptimizedTensor> trained_shards(
    const std::vector<parallel::ShardedParameter>& parameters,
    WeightDecay weight_decay = WeightDecay::kAll);

// The same by the group over which they are cut.
std::vector<optim::GradientShards> gradient_shards(
    const std::vector<parallel::ShardedParameter>& parameters);

// Parameters of fsdp_plan.ignored_modules are in no unit: their gradients, of this rank's samples
// and its parts of them, are summed here. Collective over `world`.
void sum_whole_gradients(const std::vector<parallel::ShardedParameter>& parameters,
                         distributed::Group& world);

void zero_gradients(const std::vector<parallel::ShardedParameter>& parameters);

std::vector<distributed::ShardedTensor> sharded_tensors(
    const std::vector<parallel::ShardedParameter>& parameters);

}  // namespace shardloom::trainer
