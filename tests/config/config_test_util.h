// Shared by the tests of the config room.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/config/load.h"

namespace shardloom::config {

inline std::string data_path(const std::string& name) {
  return std::string(SHARDLOOM_TEST_DATA) + "/config/" + name;
}

// The smallest valid configuration; `training` is put at its end, indented.
inline std::string minimal(const std::string& training = "") {
  return "model:\n"
         "  model_id: internvl3_5\n"
         "  model_name_or_path: ./hf\n"
         "data:\n"
         "  dataset_param:\n"
         "    dataset_type: internvl3_5\n"
         "    basic_parameters:\n"
         "      dataset: train.jsonl\n"
         "training:\n"
         "  seed: 1\n" +
         training;
}

inline LoadedConfig parse_all(const std::string& text,
                              const std::vector<std::string>& overrides = {}) {
  return parse_train_config(text, "run.yaml", overrides, FeatureCheck::kAll);
}

inline TrainConfig with(const std::vector<std::string>& overrides) {
  return parse_all(minimal(), overrides).config;
}

// The text of the ConfigError, or "" when there is none.
template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
    return "";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    return error.what();
  }
}

inline std::string parse_error(const std::string& text,
                               const std::vector<std::string>& overrides = {}) {
  return error_of([&] { parse_all(text, overrides); });
}

inline std::string override_error(const std::vector<std::string>& overrides) {
  return parse_error(minimal(), overrides);
}

}  // namespace shardloom::config
