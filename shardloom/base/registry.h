// An ordered list of named factories. Each registry is filled by one explicit list (built-ins) and
// by plug-ins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom {

template <typename T>
class Registry {
 public:
  explicit Registry(std::string what) : what_(std::move(what)) {}

  // Throws ConfigError when the name is taken.
  void add(const std::string& name, T value) {
    if (find(name) != nullptr) throw ConfigError("{} \"{}\" is registered twice", what_, name);
    entries_.emplace_back(name, std::move(value));
  }

  const T* find(const std::string& name) const {
    for (const auto& [key, value] : entries_) {
      if (key == name) return &value;
    }
    return nullptr;
  }

  // Throws ConfigError that lists the known names.
  const T& get(const std::string& name) const {
    if (const T* value = find(name)) return *value;
    throw ConfigError("unknown {} \"{}\"{}; known: {}", what_, name, did_you_mean(name, names()),
                      join(names(), ", "));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : entries_) names.push_back(entry.first);
    return names;
  }

 private:
  std::string what_;
  std::vector<std::pair<std::string, T>> entries_;
};

}  // namespace shardloom
