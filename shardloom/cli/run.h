// The whole command line: parses, runs one sub-command, turns errors into messages and exit codes.
// Called under the name mm-convert, the program has the commands of MindSpeed MM's converter.
#pragma once

namespace shardloom::cli {

inline constexpr const char* kMmConvertName = "mm-convert";

int run(int argc, const char* const* argv);

}  // namespace shardloom::cli
