// Runs a program as a user does: from the root of the repository, output and exit code captured.
#pragma once

#include <string>
#include <vector>

namespace shardloom::testing {

struct ProcessResult {
  int exit_code = 0;  // 128 + n when killed by signal n
  std::string out;
  std::string err;
};

struct ProcessOptions {
  std::string input;                     // standard input
  std::vector<std::string> environment;  // "NAME=value", in addition
  int interrupt_after_lines = 0;  // SIGINT once standard output has this many lines; 0 = never
};

// `command[0]` is the program; standard input is closed after `input`.
ProcessResult run_process(const std::vector<std::string>& command,
                          const ProcessOptions& options = {});

}  // namespace shardloom::testing
