// What to say about a key that the schema does not know.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shardloom/config/schema.h"

namespace shardloom::config {

// A key of the schema with its full path.
struct KnownKey {
  std::string path;  // "training.lr"
  const Field* field = nullptr;

  std::string parent() const;  // "training"
};

// All keys, sections included, parents before children. Optional and unused sections are listed
// without their keys, which repeat those of another section.
const std::vector<KnownKey>& known_keys();

// What other programs of the field call our keys: their name, the full path here.
const std::map<std::string, std::string>& foreign_names();

// Names the nearest key of the section, or the section the key belongs to. `section` is the one at
// `path`.
std::string unknown_key_message(const Section& section,
                                const std::string& path,
                                const YamlEntry& entry);

}  // namespace shardloom::config
