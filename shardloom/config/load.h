// Loading a run: YAML file -> overrides -> strict reading -> validation. The one entry to this
// room.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/config/schema.h"
#include "shardloom/config/train_config.h"

namespace shardloom::config {

// Whether keys whose feature is not built yet (config/not_built.h) are refused.
enum class FeatureCheck {
  kBuilt,  // refuse them: what train and check use
  kAll,    // treat everything as built
};

struct LoadedConfig {
  TrainConfig config;
  std::vector<std::string> warnings;  // "file:line:column: message"
  Sources sources;                    // of the values that are not defaults

  // Where a key is given, or the nearest section around it, or the file.
  Place place(const std::string& path) const;
  // The resolved configuration as YAML; `explain` adds "# default", "# file:line:column" or "#
  // override ..." to each line.
  std::string dump(bool explain = false) const;
};

// Priority: override > file > default. All faults together are one ConfigError with a line "place:
// message" each.
LoadedConfig load_train_config(const std::filesystem::path& path,
                               const std::vector<std::string>& overrides = {},
                               FeatureCheck features = FeatureCheck::kBuilt);

// The same from text; `origin` names it in places.
LoadedConfig parse_train_config(std::string_view text,
                                const std::string& origin,
                                const std::vector<std::string>& overrides = {},
                                FeatureCheck features = FeatureCheck::kBuilt);

// Checks the sizes against the number of processes and fills data_parallel_size,
// fully_shard_parallel_size, micro_batch_size, gradient_accumulation_steps and global_batch_size.
// Returns all faults as "place: message"; with a fault the sizes are not all filled. Call it once.
// Throws ConfigError for a number of processes that no run can have.
std::vector<std::string> resolve_sizes(LoadedConfig& loaded, int64_t world_size);
// The same; throws ConfigError with all faults.
void resolve_for_world(LoadedConfig& loaded, int64_t world_size);

// Files and folders that the configuration names but that are not there, as "place: message". Paths
// are relative to the working folder and taken literally: neither ~ nor $NAME is expanded.
std::vector<std::string> check_paths(const LoadedConfig& loaded);

// docs/config.md.
std::string reference_markdown();

}  // namespace shardloom::config
