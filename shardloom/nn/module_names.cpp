#include "shardloom/nn/module_names.h"

#include <algorithm>

#include "shardloom/base/error.h"

namespace shardloom::nn {

bool lies_below(const std::string& name, const std::string& ancestor) {
  return name.size() > ancestor.size() && name.compare(0, ancestor.size(), ancestor) == 0 &&
         name[ancestor.size()] == '.';
}

bool lies_in(const std::string& name, const std::string& ancestor) {
  return name == ancestor || lies_below(name, ancestor);
}

bool lies_in_any(const std::string& name, const std::vector<std::string>& ancestors) {
  return std::any_of(ancestors.begin(), ancestors.end(),
                     [&](const std::string& ancestor) { return lies_in(name, ancestor); });
}

ModulesByName::ModulesByName(Module& root) {
  for (const auto& [name, module] : root.named_modules()) modules_.emplace(name, module);
}

Module& ModulesByName::get(const std::string& name, const char* asker) const {
  const auto found = modules_.find(name);
  if (found == modules_.end()) throw ConfigError("{}: the model has no module \"{}\"", asker, name);
  return *found->second;
}

}  // namespace shardloom::nn
