// A configuration as a flat list, to compare it with another.
#pragma once

#include <string>
#include <vector>

#include "shardloom/config/train_config.h"

namespace shardloom::config {

struct Setting {
  std::string path;   // "training.lr"
  std::string value;  // as the dump writes it
};

// All keys but unused ones, in the order of the schema; optional sections that are absent have
// none.
std::vector<Setting> settings_of(const TrainConfig& config);

}  // namespace shardloom::config
