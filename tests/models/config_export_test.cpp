// config.json in both layouts. tests/data/hf_layout holds what transformers 5.24 saves
// (InternVLConfig.save_pretrained) for the models of examples/tiny and tests/data/tiny_dense.
#include "shardloom/models/internvl3_5/config_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temporary_folder.h"

namespace shardloom::models::internvl3_5 {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kImageToken = 762;  // <IMG_CONTEXT> in their tokenizer

struct Pair {
  std::string name;
  std::string remote_code, hf;  // folders
};

class ConfigExport : public ::testing::TestWithParam<Pair> {
 protected:
  static Config read(const std::string& folder, int64_t layers = 0) {
    return read_config(std::filesystem::path(SHARDLOOM_SOURCE_DIR) / folder, layers);
  }
  // As a run would read the export.
  Config again(const std::string& text) const {
    folder_.write("config.json", text);
    return read_config(folder_.path());
  }
  static void expect_same_model(const Config& a, const Config& b) {
    EXPECT_EQ(a.vision, b.vision);
    EXPECT_EQ(a.language, b.language);
    EXPECT_EQ(a.downsample_ratio, b.downsample_ratio);
    EXPECT_EQ(a.select_layer, b.select_layer);
    EXPECT_EQ(a.force_image_size, b.force_image_size);
    EXPECT_EQ(a.pixel_shuffle_v2, b.pixel_shuffle_v2);
  }
  // Keys that both have, section by section: of the published file none may say something else.
  // Names of classes, and the type in the spelling of old and new versions, are each file's own.
  static void expect_no_contradiction(const Json& ours, const Json& published, std::string place) {
    for (const auto& [key, value] : published.items()) {
      if (!ours.contains(key) || key == "auto_map") continue;
      if (value.is_object()) {
        expect_no_contradiction(ours.at(key), value, place + key + ".");
      } else {
        EXPECT_EQ(ours.at(key), value) << place << key;
      }
    }
  }

  TemporaryFolder folder_;
};

TEST_P(ConfigExport, HfFromRemoteCodeIsWhatTransformersWrites) {
  const Config config = read(GetParam().remote_code);
  const std::string text = export_config(config, kImageToken, "bfloat16", nn::Layout::kHfNative);
  const Config exported = again(text);
  EXPECT_EQ(exported.layout, nn::Layout::kHfNative);
  EXPECT_EQ(exported.image_token_id, kImageToken);
  expect_same_model(exported, config);
  expect_same_model(exported, read(GetParam().hf));
  const Json ours = Json::parse(text), published = read(GetParam().hf).source;
  expect_no_contradiction(ours, published, "");
  EXPECT_EQ(ours.at("torch_dtype"), published.at("dtype"));
  // Nothing that transformers would fill in by a default of its own.
  for (const auto& [key, value] : published.at("vision_config").items())
    EXPECT_TRUE(ours.at("vision_config").contains(key)) << key;
}

TEST_P(ConfigExport, RemoteCodeFromHfIsThePublishedForm) {
  const Config config = read(GetParam().hf);
  const std::string text = export_config(config, kImageToken, "bfloat16", nn::Layout::kRemoteCode);
  const Config exported = again(text);
  EXPECT_EQ(exported.layout, nn::Layout::kRemoteCode);
  expect_same_model(exported, config);
  const Json ours = Json::parse(text), published = read(GetParam().remote_code).source;
  expect_no_contradiction(ours, published, "");
  for (const auto& [key, value] : published.items()) EXPECT_TRUE(ours.contains(key)) << key;
  for (const char* section : {"llm_config", "vision_config"}) {
    for (const auto& [key, value] : published.at(section).items())
      EXPECT_TRUE(ours.at(section).contains(key)) << section << "." << key;
  }
}

TEST_P(ConfigExport, SameLayoutKeepsTheFile) {
  const Config remote = read(GetParam().remote_code), hf = read(GetParam().hf);
  EXPECT_EQ(Json::parse(export_config(remote, kImageToken, "bfloat16", nn::Layout::kRemoteCode)),
            remote.source);
  for (const auto layout : {nn::Layout::kHfNative, nn::Layout::kHfInMemory})
    EXPECT_EQ(Json::parse(export_config(hf, -1, "bfloat16", layout)), hf.source);
}

TEST_P(ConfigExport, LayersAndTypeAreThoseOfTheExport) {
  for (const auto& folder : {GetParam().remote_code, GetParam().hf}) {
    const Config config = read(folder, 3);
    for (const auto layout : {nn::Layout::kRemoteCode, nn::Layout::kHfNative}) {
      const Config exported = again(export_config(config, kImageToken, "float32", layout));
      EXPECT_EQ(exported.language.num_hidden_layers, 3);
      const Json& language = exported.source.at(nn::is_hf(layout) ? "text_config" : "llm_config");
      // transformers refuses a list of another length.
      if (language.contains("layer_types")) {
        EXPECT_EQ(language.at("layer_types").size(), 3u);
      }
      EXPECT_EQ(exported.source.value("torch_dtype", exported.source.value("dtype", "")),
                "float32");
    }
  }
}

TEST_P(ConfigExport, WhatTheHfLayoutCannotSayIsRefused) {
  const auto error_of = [](const Config& config, int64_t image_token) -> std::string {
    try {
      return export_config(config, image_token, "float32", nn::Layout::kHfNative);
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  Config config = read(GetParam().remote_code);
  EXPECT_THAT(error_of(config, -1), HasSubstr("picture token"));
  config.force_image_size = 56;
  EXPECT_THAT(error_of(config, kImageToken), HasSubstr("force_image_size 56"));
  config = read(GetParam().remote_code);
  config.pixel_shuffle_v2 = false;
  EXPECT_THAT(error_of(config, kImageToken), HasSubstr("ps_version v1"));
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    ConfigExport,
    ::testing::Values(Pair{"moe", "examples/tiny/model", "tests/data/hf_layout/moe"},
                      Pair{"dense", "tests/data/tiny_dense", "tests/data/hf_layout/dense"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shardloom::models::internvl3_5
