// What a wrong command line was probably meant to be.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace shardloom::cli {

// For options that count something: a whole number from 1 to a million.
CLI::Validator at_least_one();

// One sentence about the first word of the command line that `app` cannot take, with the nearest
// command or option; "" when CLI11's own message says all.
std::string usage_hint(const CLI::App& app, int argc, const char* const* argv);

}  // namespace shardloom::cli
