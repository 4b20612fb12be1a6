#include "shardloom/cli/threads.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace shardloom::cli {

int num_threads() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const int given = wanted == nullptr ? 0 : std::atoi(wanted);
  return given > 0 ? given : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace shardloom::cli
