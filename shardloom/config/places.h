// Where the values of a configuration are given.
#pragma once

#include <string>

#include "shardloom/config/schema.h"

namespace shardloom::config {

// The place of a key, or of the nearest section around it that is given, or of the file.
Place place_in(const Sources& sources, const std::string& path);

}  // namespace shardloom::config
