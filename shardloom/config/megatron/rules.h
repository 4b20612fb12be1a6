// Rules that join several inputs of the Megatron-style path.
#pragma once

#include <cstdint>

#include "shardloom/config/megatron/translate.h"

namespace shardloom::config::megatron {

// Checks what config::validate() cannot see: flags and files that contradict each other, and
// schedules and folders that would not do what the flags say.
void check_rules(const MegatronConfig& config, Problems& problems);

// The ratio r for which floor(total * r) is `part`, in double precision; 1 when total is 0.
double share_of(int64_t part, int64_t total);

}  // namespace shardloom::config::megatron
