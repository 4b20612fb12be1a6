// What a run is at besides its tensors: position, data order, schedule. Independent of the number
// of ranks, so that any other may go on from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/checkpoint_state.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/config/train_config.h"
#include "shardloom/data/loader.h"
#include "shardloom/optim/lr_schedule.h"

namespace shardloom::trainer {

struct TrainState {
  // Position.
  int64_t iteration = 0;         // steps done
  int64_t consumed_samples = 0;  // over all ranks
  int64_t optimizer_steps = 0;   // without those that were skipped
  int64_t skipped_samples = 0;   // bad ones left out, over all ranks
  // Data.
  std::string data;  // Dataset::fingerprint()
  bool shuffle = false;
  std::string shuffle_seed;
  int64_t seed = 0;
  int64_t shuffled_samples = 0;   // data::EpochCut
  int64_t samples_per_epoch = 0;  // likewise
  int64_t global_batch_size = 0;
  int64_t world_size = 0;
  // Learning rate.
  int64_t train_iters = 0;
  int64_t lr_warmup_iters = 0;
  double lr = 0;
  double lr_start = 0;
  double lr_min = 0;
  double lr_decay_ratio = 0;
  std::string lr_decay_style;

  data::EpochCut cut() const { return {shuffled_samples, samples_per_epoch}; }
  bool operator==(const TrainState&) const = default;
};

// At the beginning of a run of this configuration (resolved for its world).
TrainState initial_state(const config::TrainConfig& config,
                         const data::Dataset& dataset,
                         const data::SamplerOptions& sampler,
                         const optim::LrSchedule& schedule,
                         int64_t train_iters,
                         int64_t world_size);

// One value for each field, named extra_state.<field>.
std::vector<checkpoint::StateValue> to_values(const TrainState& state);
// Nothing when the checkpoint has none of them (weights alone, or another program's). Throws
// CheckpointError for a field that is missing or of another type; skipped_samples, which older
// checkpoints lack, is 0 there.
std::optional<TrainState> read_train_state(const checkpoint::dcp::Reader& reader);

// What differs between a checkpoint and the run that goes on from it.
struct StateChanges {
  std::vector<std::string> refused;    // the run would see other data than it says
  std::vector<std::string> announced;  // takes effect from here on
};
StateChanges compare(const TrainState& saved, const TrainState& now);

}  // namespace shardloom::trainer
