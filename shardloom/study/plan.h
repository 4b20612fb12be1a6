// A study before it runs: which runs there are, with what command each is started, and what a
// finished one depends on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardloom/config/load.h"
#include "shardloom/study/compare.h"
#include "shardloom/study/groups.h"

namespace shardloom::study {

struct StudyOptions {
  std::string config;
  std::vector<std::string> overrides;  // the user's, for all groups
  std::filesystem::path out;
  std::vector<std::string> groups;  // names; empty: all of the preset
  std::optional<int64_t> steps;     // none: training.train_iters
  std::optional<Window> window;     // none: 100:200, or the second half of a shorter run
  std::optional<std::filesystem::path> baseline_log;
  int nproc = 2;
  std::string preset;
  std::filesystem::path program;           // `shardloom`
  std::filesystem::path baseline_program;  // `pretrain_transformers`
  std::string version;
  std::string command;  // as the user typed it, for the report
  // What is wrong with a configuration on so many processes; resolves its sizes. Throws
  // ConfigError. The command line gives trainer::check_run.
  std::function<void(config::LoadedConfig&, int64_t world)> check = config::resolve_for_world;
};

// One start of a group.
struct Run {
  const Group* group = nullptr;  // of a preset: lives for ever
  int repetition = 1;            // from 1
  std::string name;              // its folder below the study's
  std::filesystem::path folder;
  bool selected = false;                                   // by --groups
  std::vector<std::string> command;                        // program and arguments
  std::vector<std::pair<std::string, std::string>> files;  // written into the folder before
  // All that decides what the run computes, as lines; equal text means that it need not run again.
  std::string inputs;
};

struct StudyPlan {
  StudyOptions options;
  const Preset* preset = nullptr;
  int64_t steps = 0;
  Window window;
  // In the order of running. A group that is not selected and cannot be planned is absent.
  std::vector<Run> runs;
};

// Plans all groups and checks the selected ones. Throws one ConfigError with all faults.
StudyPlan plan_study(const StudyOptions& options);

inline constexpr const char* kMetricsFolder = "metrics";
inline constexpr const char* kConsoleLog = "console.log";
inline constexpr const char* kCommandFile = "command.txt";
inline constexpr const char* kConfigFile = "config.yaml";

// The metrics of the run, in full precision.
std::filesystem::path metrics_file(const Run& run);

// Words quoted where a shell wants it.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace shardloom::study
