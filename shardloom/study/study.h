// Runs a study: the planned runs one after the other, the report after each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "shardloom/study/plan.h"

namespace shardloom::study {

// Runs `command` to its end with all its output in the file `log`; returns its exit code
// (shardloom/base/error.h), 130 after an interrupt.
using StartProcess =
    std::function<int(const std::vector<std::string>& command, const std::filesystem::path& log)>;

// Complete runs are kept, all others start from their beginning. A run that fails ends the study:
// an Error with its exit code that names its log. What runs, and how long the rest will take, is
// told on standard error.
void run_study(const StudyPlan& plan, const StartProcess& start);

}  // namespace shardloom::study
