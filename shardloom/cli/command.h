// Each sub-command adds itself to the CLI11 app; parsing sets `action`, which main runs once
// parsing is done.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace shardloom::cli {

using Action =
    std::function<int()>;  // returns the exit code; errors are thrown as shardloom::Error

void add_train_command(CLI::App& app, Action& action);
void add_check_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_launch_command(CLI::App& app, Action& action);
void add_tokenize_command(CLI::App& app, Action& action);
void add_inspect_command(CLI::App& app, Action& action);
void add_compare_command(CLI::App& app, Action& action);
void add_study_command(CLI::App& app, Action& action);
void add_convert_command(CLI::App& app, Action& action);
// The commands of the program under its other name, mm-convert.
void add_mm_convert_commands(CLI::App& app, Action& action);

}  // namespace shardloom::cli
