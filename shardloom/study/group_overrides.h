// A group as overrides on the configuration that all groups share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardloom/config/load.h"
#include "shardloom/study/groups.h"

namespace shardloom::study {

// What all groups have in common: the user's configuration, and what it makes of a batch.
struct BaseRun {
  config::LoadedConfig loaded;  // sizes not resolved
  int64_t global_batch_size = 0;
  int64_t gradient_accumulation_steps = 1;
  int nproc = 0;
};

// Reads CONFIG with the user's overrides; the batch is the one that it makes on `nproc` processes.
// Throws ConfigError with all faults.
BaseRun load_base_run(const std::string& config,
                      const std::vector<std::string>& overrides,
                      int nproc);

// "key=value" as `shardloom train` takes them, after the user's own. They set each switch, both
// ways; split the global batch over the group's data-parallel ranks; give InternVL3.5's modules to
// plans that the configuration leaves empty; and turn off saving and validation. Throws ConfigError
// when the batch cannot be split, or a group wants a module that no plan names.
std::vector<std::string> group_overrides(const Group& group, const BaseRun& base);

}  // namespace shardloom::study
