// Overrides of the command line, such as training.lr=1e-4.
#pragma once

#include <string>
#include <vector>

#include "shardloom/config/yaml.h"

namespace shardloom::config {

// Puts each "a.b.c=value" into the tree, as if it stood in the file; the last one of a key wins.
// Values are typed as in the file. Lists are written [x, y]; text needs no quotes, except inside
// lists where it holds a comma outside braces.
void apply_overrides(YamlNode& root, const std::vector<std::string>& overrides, Problems& problems);

}  // namespace shardloom::config
