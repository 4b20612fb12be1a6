// Keys of the reference whose feature is not built yet: known by name, refused when they ask for
// it.
#pragma once

#include <string>
#include <vector>

namespace shardloom::config {

struct NotBuilt {
  std::string path;                   // "training.save_async"
  std::vector<std::string> inactive;  // values (as the dump writes them) that ask for nothing
  std::string remedy;                 // "" or what to use instead
};

const std::vector<NotBuilt>& not_built_keys();

// Package paths (with / or .) of the reference's plug-ins whose content is built in here.
bool is_builtin_plugin(const std::string& plugin);

}  // namespace shardloom::config
