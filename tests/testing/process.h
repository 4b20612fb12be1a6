// Runs a program as a user does: from the root of the repository, output and exit code captured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shardloom::testing {

struct ProcessResult {
  int exit_code = 0;  // 128 + n when killed by signal n
  std::string out;
  std::string err;
  int64_t peak_bytes = 0;  // largest resident memory
};

struct ProcessOptions {
  std::string input;                     // standard input
  std::vector<std::string> environment;  // "NAME=value", in addition
  int interrupt_after_lines = 0;  // SIGINT once standard output has this many lines; 0 = never
  // In place of that SIGINT: called with the number of the process.
  std::function<void(int)> instead_of_interrupt;
};

// `command[0]` is the program; standard input is closed after `input`.
ProcessResult run_process(const std::vector<std::string>& command,
                          const ProcessOptions& options = {});

// Number of the process that `parent` started with `variable` ("RANK=1") in its environment; 0 when
// there is none.
int find_child(int parent, const std::string& variable);

}  // namespace shardloom::testing
