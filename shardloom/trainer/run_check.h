// Everything that can be wrong with a run before anything heavy is made: no process group, no
// weights.
#pragma once

#include <cstdint>
#include <memory>

#include "shardloom/config/load.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/parts.h"

namespace shardloom::trainer {

// Fills the sizes of the configuration for `world` processes (config::resolve_sizes), loads its
// plug-ins and builds its model on the meta device, which is returned. Throws one ConfigError with
// a line for each broken size rule, missing path, training.load without weights and module pattern
// without a match; warnings are added to those of `loaded`. What only shows when the model is
// sharded: rehearse().
std::shared_ptr<models::Model> check_run(config::LoadedConfig& loaded,
                                         int64_t world,
                                         const TrainerParts& parts = parts_of_config(),
                                         TokenIds token_ids = TokenIds::kNone);

// What of the data and the weights is not there to train with, as warnings: no usable tokenizer, a
// data set that is smaller than one batch, files of the weights that are missing. For a
// configuration that check_run() has taken; reads the lines of the data, and no tensor. Throws
// ConfigError for a setting that the data set refuses.
std::vector<std::string> missing_inputs(const config::TrainConfig& config);

// make_parallel() on `model` as rank 0 of `world`, for its errors: a module of a plan that cannot
// play its part. The model serves no other purpose afterwards; nothing is communicated.
void rehearse(const config::TrainConfig& config,
              int64_t world,
              const TrainerParts& parts,
              models::Model& model);

// Both, with a model of its own: all that can be wrong before ranks are started.
void check_whole(config::LoadedConfig& loaded, int64_t world, const TrainerParts& parts);

}  // namespace shardloom::trainer
