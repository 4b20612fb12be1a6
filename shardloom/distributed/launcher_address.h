// Where the ranks meet: MASTER_ADDR and MASTER_PORT.
#pragma once

#include <string>

#include "shardloom/distributed/launcher_fd.h"

namespace shardloom::distributed {

struct LaunchOptions;

struct MasterAddress {
  std::string host;
  int port = 0;
  // Keep these open while the ranks run: `reservation` is bound to the port with SO_REUSEADDR and
  // does not listen, so that rank 0 can (with SO_REUSEADDR, as c10d's store does) and nobody else
  // is given this free port; `lock` refuses a second launcher with the same port before its ranks
  // could meet ours.
  UniqueFd reservation, lock;
};

// Throws ConfigError when settings are missing, DistributedError when the host does not resolve or
// the port cannot be had on this host (looked at where rank 0 will run).
MasterAddress find_master_address(const LaunchOptions& options);

}  // namespace shardloom::distributed
