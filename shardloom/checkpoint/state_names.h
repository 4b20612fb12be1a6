// Names inside a training checkpoint, as MindSpeed MM and torch.distributed.checkpoint write them:
//   model.<parameter>                             weights
//   optimizer.state.<parameter>.exp_avg           AdamW: exp_avg, exp_avg_sq, step
//   optimizer.param_groups.0.lr                   settings of the optimizer; params lists its names
//   extra_state.<field>                           what training needs to go on (ours)
//   checkpoint_version                            3.0, in converted weights
// A parameter may carry one more "model." in front (the Megatron-style wrapper, the default of
// MindSpeed MM's own mm-convert); both forms are read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/dcp/metadata.h"

namespace shardloom::checkpoint {

inline constexpr const char* kModelKey = "model";
inline constexpr const char* kOptimizerKey = "optimizer";
inline constexpr const char* kExtraStateKey = "extra_state";
inline constexpr const char* kCheckpointVersionKey = "checkpoint_version";
inline constexpr double kCheckpointVersion = 3.0;
// In front of a parameter's own name: in checkpoints of training, and in mm-convert's.
inline constexpr const char* kNoPrefix = "";
inline constexpr const char* kWrapperPrefix = "model.";

// Moments and update count of one parameter.
inline constexpr const char* kExpAvg = "exp_avg";
inline constexpr const char* kExpAvgSq = "exp_avg_sq";
inline constexpr const char* kStep = "step";

// A name and the same as keys of the nested dicts and lists.
struct StateKey {
  std::string name;
  dcp::StatePath path;
};

StateKey model_key(std::string_view parameter, std::string_view prefix = kNoPrefix);
StateKey optimizer_state_key(std::string_view parameter,
                             std::string_view field,
                             std::string_view prefix = kNoPrefix);
StateKey param_group_key(int64_t group, std::string_view option);
StateKey extra_state_key(std::string_view field);
// A key of the outermost dict: checkpoint_version.
StateKey root_key(std::string_view name);

// What stands between "model." and the names of these parameters: the prefix of those two with
// which more of them are in the checkpoint. kNoPrefix when none is there.
std::string detect_prefix(const dcp::Metadata& metadata,
                          const std::vector<std::string>& parameters);

}  // namespace shardloom::checkpoint
