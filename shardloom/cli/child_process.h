// Another program, started and waited for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace shardloom::cli {

// Runs `command` (a path and its arguments) to its end in the working folder, with all its output
// in the new file `log`. SIGINT, SIGTERM and SIGHUP are passed on to it, a second one kills it, and
// it dies with this process. Returns its exit code, 130 after such a signal, 5 when another signal
// has killed it. Throws DistributedError when it cannot be started.
int run_logged(const std::vector<std::string>& command, const std::filesystem::path& log);

}  // namespace shardloom::cli
