// What a training checkpoint holds, under the names of MindSpeed MM (checkpoint/state_names.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/checkpoint_state.h"
#include "shardloom/config/train_config.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/parallel/fully_shard.h"
#include "shardloom/trainer/train_state.h"

namespace shardloom::trainer {

// The state of one rank's random generator on the CPU: bytes as torch.get_rng_state() gives them.
checkpoint::StateKey rng_state_key(int64_t rank);

// The file type of training.save_ckpt_dtype; null is fp32.
checkpoint::DType save_dtype(const std::optional<std::string>& name);

struct RunTensors {
  const std::vector<parallel::ShardedParameter>& parameters;
  const optim::AdamW& optimizer;
};

// Weights in training.save_ckpt_dtype; moments, update counts and settings of the optimizer unless
// no_save_optim; the random generator unless no_save_rng; the state. `next_lr` is that of the step
// to come, which torch's schedulers leave in the optimizer. The tensors share storage with the run.
checkpoint::CheckpointState checkpoint_contents(const config::TrainingConfig& training,
                                                const RunTensors& run,
                                                const TrainState& state,
                                                double next_lr,
                                                int rank);

}  // namespace shardloom::trainer
