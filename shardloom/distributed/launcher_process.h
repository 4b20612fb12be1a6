// One child process in a process group of its own, which dies with this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "shardloom/distributed/launcher_fd.h"

namespace shardloom::distributed {

// The end of a pipe that we read, and the one that the child writes.
struct OutputChannel {
  UniqueFd read_end, write_end;  // read_end does not block
};

// A pipe; when `like_fd` is a terminal, a pseudo-terminal of its size, so that the child still
// draws its progress bar. Throws DistributedError.
OutputChannel make_output_channel(std::optional<int> like_fd);

// Starts command[0], searched for in PATH, with exactly this environment ("NAME=value") and
// signals as in a fresh process. Throws DistributedError with the program's name.
// The calling thread must outlive the child: the kernel kills the child when it ends.
pid_t start_process(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment,
                    int out,
                    int err);

// The status of waitpid once the process has ended; whatever is left of its process group is killed
// then. Does not wait.
std::optional<int> reap_process(pid_t process);

}  // namespace shardloom::distributed
