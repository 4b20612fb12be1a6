#include "shardloom/models/internvl3_5/config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/models/internvl3_5/model.h"

namespace shardloom::models::internvl3_5 {
namespace {

class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("shardloom_config_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    json_ = read_json_file(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model/config.json",
                           ExitCode::kInternal);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string error_of() {
    std::ofstream(folder_ / "config.json") << json_.dump();
    try {
      read_config(folder_);
      return {};
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }

  std::filesystem::path folder_;
  Json json_;
};

TEST_F(ConfigFile, TinyModelIsRead) {
  const Config c =
      read_config(std::filesystem::path(SHARDLOOM_SOURCE_DIR) / "examples/tiny/model", 3);
  EXPECT_EQ(c.language.num_hidden_layers, 3);
  EXPECT_EQ(c.image_tokens(), 16);
  EXPECT_TRUE(c.language.norm_topk_prob);
}

TEST_F(ConfigFile, WhatIsNotComputedIsRefusedByName) {
  const std::pair<std::vector<std::string>, Json> changes[] = {
      {{"vision_config", "norm_type"}, "rms_norm"},
      {{"vision_config", "qk_normalization"}, true},
      {{"llm_config", "rope_scaling"}, Json{{"type", "dynamic"}}},
      {{"llm_config", "model_type"}, "llama"},
      {{"llm_config", "tie_word_embeddings"}, true},
      {{"llm_config", "attention_bias"}, true}};
  for (const auto& [path, value] : changes) {
    const Json before = json_;
    json_[path[0]][path[1]] = value;
    EXPECT_NE(error_of().find(path[1]), std::string::npos) << path[1] << ": " << error_of();
    json_ = before;
  }
}

TEST_F(ConfigFile, MissingAndWrongValuesNameTheKey) {
  json_["llm_config"].erase("norm_topk_prob");
  EXPECT_NE(error_of().find("norm_topk_prob"), std::string::npos);
  json_["llm_config"]["norm_topk_prob"] = true;
  json_["llm_config"]["num_key_value_heads"] = 3;
  EXPECT_NE(error_of().find("num_key_value_heads 3"), std::string::npos);
  json_["llm_config"]["num_key_value_heads"] = "two";
  EXPECT_NE(error_of().find("\"two\" has the wrong type"), std::string::npos);
}

TEST_F(ConfigFile, MoreLayersThanThereAreIsAnError) {
  EXPECT_THROW(read_config(std::filesystem::path(SHARDLOOM_SOURCE_DIR) / "examples/tiny/model", 5),
               ConfigError);
}

}  // namespace
}  // namespace shardloom::models::internvl3_5
