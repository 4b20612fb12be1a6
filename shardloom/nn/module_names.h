// Modules by their dotted names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shardloom/nn/module.h"

namespace shardloom::nn {

// "a.b.c" lies below "a.b" and "a"; nothing lies below itself.
bool lies_below(const std::string& name, const std::string& ancestor);
// The same, or equal to it; to one of them.
bool lies_in(const std::string& name, const std::string& ancestor);
bool lies_in_any(const std::string& name, const std::vector<std::string>& ancestors);

class ModulesByName {
 public:
  explicit ModulesByName(Module& root);
  // Throws ConfigError naming who asks, such as "fully_shard".
  Module& get(const std::string& name, const char* asker) const;

 private:
  std::map<std::string, Module*> modules_;
};

}  // namespace shardloom::nn
