// How a model of the Megatron-style path is sharded: FSDP2Mixin of MindSpeed-MM
// (mindspeed_mm/models/transformers/base_model.py). A model's class overrides _fully_shard() to
// choose units, recomputation and prefetch itself, in place of fsdp2_config.yaml:
//
//   void _fully_shard(const Fsdp2Kwargs& fsdp2_kwargs, const Fsdp2Config& config) override {
//     set_recompute_modules_to_wrap({"blocks.{*}"});
//     set_fullyshard_modules_to_wrap({"blocks.{*}"}, fsdp2_kwargs);
//     set_modules_to_prefetch({"blocks.{*}"}, 1, 1);
//   }
//
// Instead of the second call it may use parallel::fully_shard(module, mesh, options) itself,
// children first and the model last.
#pragma once

#include <memory>

#include "shardloom/config/megatron/fsdp2_config.h"
#include "shardloom/models/model.h"
#include "shardloom/parallel/apply.h"
#include "shardloom/trainer/sharding.h"

namespace shardloom {

using config::megatron::Fsdp2Config;

// What fully_shard() is called with.
struct Fsdp2Kwargs {
  std::shared_ptr<const distributed::DeviceMesh> mesh;
  parallel::FullyShardOptions options;
};

class FSDP2Mixin {
 public:
  virtual ~FSDP2Mixin() = default;

  // The model, on the meta device: this object where its class is both.
  virtual models::Model& model() = 0;

  // Cuts experts and sequences, shards the experts, calls _fully_shard() and sees that it sharded
  // the whole model. Gradients are summed over ranks, as losses normalised over the global batch
  // want it. `config` says the same as `fsdp2_config` and the flags. Throws ConfigError.
  trainer::ParallelModel fully_shard(const config::TrainConfig& config,
                                     const distributed::ParallelMeshes& meshes,
                                     const Fsdp2Config& fsdp2_config);

 protected:
  // By default what fsdp2_config.yaml says. To be overridden.
  virtual void _fully_shard(const Fsdp2Kwargs& fsdp2_kwargs, const Fsdp2Config& fsdp2_config);

  // For _fully_shard(), in this order. Patterns as in config/pattern.h; a pattern that matches
  // nothing is a ConfigError.
  void set_recompute_modules_to_wrap(const config::Patterns& modules, bool use_reentrant = true);
  // The modules, children first, then the model.
  void set_fullyshard_modules_to_wrap(const config::Patterns& modules,
                                      const Fsdp2Kwargs& fsdp2_kwargs);
  // In the order of the tree, whatever the written order; 0: none.
  void set_modules_to_prefetch(const config::Patterns& modules,
                               int64_t num_to_forward_prefetch,
                               int64_t num_to_backward_prefetch);

 private:
  std::vector<std::string> in_tree_order(const config::Patterns& modules, const char* key);

  parallel::ShardingPlan plan_;
};

}  // namespace shardloom
