// Studies without training: a program that writes the metrics it is told to.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/study/study.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::study {

inline const std::string kSource = SHARDLOOM_SOURCE_DIR;

// Of the golden trajectory, with files that are there whatever the working folder is.
inline StudyOptions options_for(const std::filesystem::path& out, int64_t steps = 4) {
  StudyOptions options;
  options.config = kSource + "/tests/data/trajectory.yaml";
  options.overrides = {"training.micro_batch_size=1"};
  options.out = out;
  options.steps = steps;
  options.program = "/bin/true";
  options.baseline_program = "/bin/true";
  options.version = "1.2.3";
  options.command = "shardloom study";
  return options;
}

// What a fake run writes for a step.
struct FakeStep {
  double loss = 0;
  double elapsed_ms = 0;
};

// The name of the run is that of the folder of its log.
using FakeSteps = std::function<FakeStep(const std::string& run, int64_t iteration)>;

class FakeProgram {
 public:
  FakeProgram(int64_t steps, FakeSteps values) : steps_(steps), values_(std::move(values)) {}

  StartProcess start() {
    return [this](const std::vector<std::string>& command, const std::filesystem::path& log) {
      const std::string run = log.parent_path().filename().string();
      started.push_back(run);
      commands.push_back(command);
      std::string lines;
      for (int64_t i = 1; i <= (run == stops_in ? 2 : steps_); ++i) {
        const FakeStep step = values_(run, i);
        lines += OrderedJson{{"iteration", i},
                             {"loss", step.loss},
                             {"grad_norm", 1.0},
                             {"lr", 0.001},
                             {"elapsed_ms", step.elapsed_ms},
                             {"memory_allocated", 3 << 20},
                             {"memory_reserved", 5 << 20}}
                     .dump() +
                 "\n";
      }
      std::filesystem::create_directories(log.parent_path() / kMetricsFolder);
      write_file_atomically(log.parent_path() / kMetricsFolder / "metrics.jsonl", lines);
      write_file_atomically(log, console);
      return run == stops_in ? exit_code : 0;
    };
  }

  std::string stops_in;  // a run that ends after two steps with exit_code
  int exit_code = 0;
  std::string console = "starting\nerror: it went wrong\nof another rank\n";
  std::vector<std::string> started;
  std::vector<std::vector<std::string>> commands;

 private:
  int64_t steps_;
  FakeSteps values_;
};

inline std::string config_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace shardloom::study
