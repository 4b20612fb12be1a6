// What ranks tell each other while they save: texts, and whether something failed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"

namespace shardloom::checkpoint {

// Collective: the text of each rank, in rank order, on every rank.
std::vector<std::string> all_gather_text(distributed::Group& group,
                                         const std::string& text,
                                         const std::string& label);

// Collective: runs `action` on every rank. When it throws on some, all throw the same
// CheckpointError, which names the first of them and its error.
void together(distributed::Group& group,
              const std::string& label,
              const std::function<void()>& action);

}  // namespace shardloom::checkpoint
