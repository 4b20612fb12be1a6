// YAML text as a tree in which every node knows its place. Stricter than YAML: one document, text
// keys, no duplicate keys, no tabs in indentation, no tags. Anchors, aliases and `<<` merge keys
// are resolved (explicit keys win).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardloom/config/problems.h"

namespace shardloom::config {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };

  Kind kind = Kind::kNull;
  Place place;
  std::string text;     // of a scalar
  bool quoted = false;  // a scalar in quotes or a block scalar: text, never a number or a boolean
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;

  const YamlEntry* find(std::string_view key) const;
  YamlEntry* find(std::string_view key);
  // "a map", "a list", "nothing (null)", "the text \"x\"", for messages.
  std::string describe() const;
};

struct YamlEntry {
  std::string key;
  Place key_place;
  YamlNode value;
};

// Parses `text`; `origin` names it in places. Syntax faults throw ConfigError at once; duplicate
// keys and bad merges go to `problems`. Null when the text holds no document.
YamlNode parse_yaml(std::string_view text, const std::string& origin, Problems& problems);

}  // namespace shardloom::config
