// Threads of commands that run as one process.
#pragma once

namespace shardloom::cli {

// OMP_NUM_THREADS, else the number of cores.
int num_threads();

}  // namespace shardloom::cli
