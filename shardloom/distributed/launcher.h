// Starts the ranks of a run on this host and watches over them until all have ended, in the role
// of torchrun: for `shardloom launch` and `shardloom train --nproc N`.
//
// Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// OMP_NUM_THREADS (cores divided by local ranks, unless it is set), an empty standard input and a
// process group of its own, which is killed whole when the rank ends. Ranks die with the launcher.
//
// Output: that of rank 0 passes through, that of the others line by line behind "[rank N] ".
//
// Failure: when one rank ends with an error, the others get SIGTERM at once and SIGKILL after
// `grace`. The last line on the console names the rank that failed first and its last
// "error: ..." line. SIGINT, SIGTERM and SIGHUP are passed on to all ranks; a second one kills.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace shardloom::distributed {

struct LaunchOptions {
  std::vector<std::string> command;  // program (path, or a name in PATH) and its arguments
  int nproc = 1;                     // ranks on this host
  int nnodes = 1;
  int node_rank = 0;        // RANK = node_rank * nproc + LOCAL_RANK
  std::string master_addr;  // host of rank 0; may be empty (127.0.0.1) when nnodes is 1
  int master_port = 0;      // 0 = a free one, when nnodes is 1
  std::chrono::milliseconds grace{5000};
};

// Returns 0 when every rank ended well, else the exit code of the first cause
// (shardloom/base/error.h; 5 when a signal killed it), 130 after an interrupt that the ranks
// followed. Throws ConfigError for sizes that do not fit, DistributedError for a port in use, a
// host that does not resolve, or a program that cannot be started; no rank runs then.
// Not for two threads of one process at once: it takes over the handling of signals meanwhile.
int launch(const LaunchOptions& options);

// The same for this very program: `options.command` holds its arguments alone.
int launch_self(LaunchOptions options);

}  // namespace shardloom::distributed
