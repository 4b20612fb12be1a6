// Durations that the environment of a process sets.
#pragma once

#include <chrono>

namespace shardloom::distributed {

// The variable as a number of seconds ("90", "0.5"), at least `least` and at most 30 days; `unset`
// when it is not set or empty. Throws ConfigError naming the variable and its value.
std::chrono::milliseconds seconds_from_environment(const char* name,
                                                   std::chrono::milliseconds unset,
                                                   std::chrono::milliseconds least);

}  // namespace shardloom::distributed
