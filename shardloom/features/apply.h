// Applies the features that save memory to a model (the features section of the YAML file, with its
// patterns resolved to names of modules).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/features/activation_offload.h"
#include "shardloom/features/recompute.h"

namespace shardloom::features {

struct FeaturePlan {
  std::vector<std::string> recompute;  // modules that run again in backward
  RecomputeMode recompute_mode = RecomputeMode::kSavedTensors;
  std::vector<std::string> offload;  // blocks in the order in which forward runs them
  std::string chunk_loss;            // the output layer; "": none
  int64_t chunk_rows = 0;            // of chunk_loss
};

// Recomputation innermost, offload around it; to be called before parallel::apply, whose wrappers
// stand outermost. Throws ConfigError for a name that no module has and for a module that a feature
// does not fit. Returns the offload for its counters; null without one.
std::unique_ptr<ActivationOffload> apply(nn::Module& root, const FeaturePlan& plan);

}  // namespace shardloom::features
