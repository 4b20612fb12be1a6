// Everything that can be wrong with a run before anything heavy is made: no process group, no
// weights.
#pragma once

#include <cstdint>
#include <memory>

#include "shardloom/config/load.h"
#include "shardloom/models/model.h"

namespace shardloom::trainer {

// Fills the sizes of the configuration for `world` processes (config::resolve_sizes), loads its
// plug-ins and builds its model on the meta device, which is returned. Throws one ConfigError with
// a line for each broken size rule, missing path, training.load without weights and module pattern
// without a match; warnings are added to those of `loaded`.
std::unique_ptr<models::Model> check_run(config::LoadedConfig& loaded, int64_t world);

}  // namespace shardloom::trainer
