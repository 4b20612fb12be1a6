// Which flag or file key stands behind each key of the YAML path, so that messages about the
// translated configuration name what the user wrote.
#pragma once

#include <vector>

#include "shardloom/config/megatron/translate.h"

namespace shardloom::config::megatron {

struct KeyPair {
  const char* from;  // in a file: "loss_cfg.chunk_size"
  const char* to;    // in TrainConfig: "features.chunkloss_plan.chunk_size"
};

// All keys of the three files that say a key of the YAML path.
std::vector<KeyPair> key_pairs();

// Fills config.loaded.sources from the sources of the four inputs.
void fill_sources(MegatronConfig& config);

}  // namespace shardloom::config::megatron
