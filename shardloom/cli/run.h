// The whole command line: parses, runs one sub-command, turns errors into messages and exit codes.
#pragma once

namespace shardloom::cli {

int run(int argc, const char* const* argv);

}  // namespace shardloom::cli
