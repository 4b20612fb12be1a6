// Rules that join several keys.
#pragma once

#include "shardloom/config/load.h"

namespace shardloom::config {

// Checks everything that needs neither the disk nor the model nor the number of processes.
void validate(const LoadedConfig& loaded, FeatureCheck features, Problems& problems);

}  // namespace shardloom::config
