// Processor cores of this host.
#pragma once

namespace shardloom {

int num_cores();
// Threads of each of `processes` on this host: the cores divided among them, at least one.
int share_of_cores(int processes);

}  // namespace shardloom
