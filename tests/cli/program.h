// Calls of the built program and its metrics.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "shardloom/base/json.h"
#include "tests/testing/process.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::testing {

inline constexpr const char* kTrajectory = "tests/data/trajectory.yaml";

// Lines of a data set: one to train on, one whose picture is missing.
inline const std::string kGoodRecord =
    R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"
    "\n";
inline const std::string kBadRecord =
    R"({"image": "missing.png", "conversations": [{"from": "human", "value": "<image>a"}, )"
    R"({"from": "gpt", "value": "b"}]})"
    "\n";

inline ProcessResult shardloom(std::vector<std::string> arguments,
                               const ProcessOptions& options = {}) {
  arguments.insert(arguments.begin(), std::string(SHARDLOOM_BIN_DIR) + "/shardloom");
  return run_process(arguments, options);
}

// `shardloom train CONFIG overrides... training.metrics_dir=DIR`
inline ProcessResult train(const std::string& config,
                           const std::filesystem::path& metrics_dir,
                           std::vector<std::string> overrides,
                           const ProcessOptions& options = {}) {
  overrides.insert(overrides.begin(),
                   {"train", config, "training.metrics_dir=" + metrics_dir.string()});
  return shardloom(overrides, options);
}

inline std::vector<Json> read_metrics(const std::filesystem::path& metrics_dir) {
  std::ifstream file(metrics_dir / "metrics.jsonl");
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

inline std::vector<double> losses(const std::filesystem::path& metrics_dir) {
  std::vector<double> values;
  for (const Json& row : read_metrics(metrics_dir)) {
    if (row.contains("loss"))
      values.push_back(row["loss"].is_null() ? NAN : row["loss"].get<double>());
  }
  return values;
}

}  // namespace shardloom::testing
