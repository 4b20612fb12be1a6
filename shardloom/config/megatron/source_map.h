// Which flag or file key stands behind each key of the YAML path, so that messages about the
// translated configuration name what the user wrote.
#pragma once

#include <string>

#include "shardloom/config/megatron/translate.h"

namespace shardloom::config::megatron {

// Fills config.loaded.sources from the sources of the four inputs.
void fill_sources(MegatronConfig& config);

}  // namespace shardloom::config::megatron
