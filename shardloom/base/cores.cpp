#include "shardloom/base/cores.h"

#include <algorithm>
#include <thread>

namespace shardloom {

int num_cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

int share_of_cores(int processes) { return std::max(1, num_cores() / processes); }

}  // namespace shardloom
