// The DCP checkpoint that training.load names: weights, and what a run needs to go on from it.
#pragma once

#include <vector>

#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/config/train_config.h"
#include "shardloom/models/model.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/parallel/fully_shard.h"
#include "shardloom/trainer/load_source.h"
#include "shardloom/trainer/train_state.h"

namespace shardloom::trainer {

// No function is collective: each rank reads the rows that it holds, with their checksums. Errors
// are CheckpointError.
class SavedRun {
 public:
  // `verbose`: one rank tells what it finds.
  SavedRun(LoadSource source, const config::TrainingConfig& training, bool verbose);

  // Where a run begins that would begin with `fresh` by itself: at iteration 0 for weights alone. A
  // run that goes on keeps the order of the data; throws when data, seed or shuffling are others,
  // and tells what else has changed.
  TrainState begin(const TrainState& fresh);

  void load_weights(const models::Model& model,
                    const std::vector<parallel::ShardedParameter>& parameters) const;

  // These two after begin(). Nothing for weights alone, and with no_load_optim and no_load_rng.
  void load_optimizer(const std::vector<parallel::ShardedParameter>& parameters,
                      optim::AdamW& optimizer) const;
  // Of as many ranks as have saved theirs; others take that of a rank that did.
  void load_rng(int rank) const;

  const std::filesystem::path& folder() const { return source_.folder; }

 private:
  bool goes_on() const { return source_.iteration.has_value(); }

  LoadSource source_;
  const config::TrainingConfig& training_;
  bool verbose_;
  checkpoint::dcp::Reader reader_;
  std::optional<TrainState> saved_;
};

}  // namespace shardloom::trainer
