// The rooms below know the keys of the YAML path alone. Here their messages get the words of who
// runs the Megatron-style path: flags, and keys of the three files.
#pragma once

#include <string>
#include <vector>

#include "shardloom/config/megatron/translate.h"

namespace shardloom::config::megatron {

// A message, of one line or several. Each key of the YAML path that a flag or a file says becomes
// its name there; a line that begins with such a key begins with its place instead:
//   "training.save: cannot write to /x"        -> "--save /x: cannot write to /x"
//   "..., or set training.on_nan: skip"        -> "..., or set --on-nan skip"
//   "needs parallel.ep_plan.apply_modules"     -> "needs moe_modules"
std::string in_own_terms(const std::string& message, const MegatronConfig& config);
std::vector<std::string> in_own_terms(std::vector<std::string> messages,
                                      const MegatronConfig& config);

}  // namespace shardloom::config::megatron
