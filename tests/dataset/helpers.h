// What the tests of the data room share.
#pragma once

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "shardloom/data/dataset.h"
#include "shardloom/data/model_facts.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::data {

inline std::filesystem::path test_data(const std::string& name) {
  return std::filesystem::path(SHARDLOOM_TEST_DATA) / "dataset" / name;
}

inline std::filesystem::path tiny_example(const std::string& name) {
  return std::filesystem::path(SHARDLOOM_SOURCE_DIR) / "examples" / "tiny" / name;
}

// The tiny model with tiles of 448 pixels, so that a tile has 256 tokens as in the published
// models.
inline ModelFacts facts_448() {
  return {.model_folder = tiny_example("model").string(), .vocab_rows = 864, .image_size = 448};
}

inline config::DatasetParam param_for(const std::filesystem::path& jsonl,
                                      int64_t cutoff_len = 1024) {
  config::DatasetParam param;
  param.dataset_type = "internvl3_5";
  param.max_dynamic_patch = 1;
  param.basic_parameters.dataset = {jsonl.string()};
  param.basic_parameters.dataset_dir = test_data("images").string();
  param.basic_parameters.cutoff_len = cutoff_len;
  return param;
}

// The text of the error of data that `action` throws; fails the test when it throws nothing or
// something else.
template <typename Action>
std::string data_error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace shardloom::data
