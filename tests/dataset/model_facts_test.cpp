#include "shardloom/data/model_facts.h"

#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ModelFacts, RemoteCodeLayout) {
  const ModelFacts facts = read_model_facts(tiny_example("model"));
  EXPECT_EQ(facts.model_folder, tiny_example("model").string());
  EXPECT_EQ(facts.vocab_rows, 864);
  EXPECT_EQ(facts.image_size, 112);
  EXPECT_EQ(facts.patch_size, 14);
  EXPECT_EQ(facts.downsample_ratio, 0.5);
  EXPECT_EQ(facts.conv_style, "internvl2_5");
}

TEST(ModelFacts, RemoteCodeWithoutForcedSizeTakesTheVisionSize) {
  const TemporaryFolder folder;
  folder.write(
      "config.json",
      R"({"force_image_size": null, "downsample_ratio": 0.5, "llm_config": {"vocab_size": 10},
                                  "vision_config": {"image_size": 224, "patch_size": 14}})");
  EXPECT_EQ(read_model_facts(folder.path()).image_size, 224);
}

TEST(ModelFacts, HfLayoutWithListsAndNumbers) {
  const TemporaryFolder folder;
  folder.write(
      "config.json",
      R"({"model_type": "internvl", "downsample_ratio": 0.5, "text_config": {"vocab_size": 151936},
                                  "vision_config": {"image_size": [448, 448], "patch_size": 14}})");
  const ModelFacts facts = read_model_facts(folder.path());
  EXPECT_EQ(facts.vocab_rows, 151936);
  EXPECT_EQ(facts.image_size, 448);
  EXPECT_EQ(facts.patch_size, 14);
}

TEST(ModelFacts, MissingAndOddValuesAreNamed) {
  const TemporaryFolder folder;
  auto error_of = [&](const char* config) {
    folder.write("config.json", config);
    return data_error_of([&] { read_model_facts(folder.path()); });
  };
  EXPECT_THAT(error_of(R"({"downsample_ratio": 0.5})"),
              AllOf(HasSubstr("config.json"), HasSubstr("\"llm_config\" is missing")));
  EXPECT_THAT(error_of(R"({"text_config": {}})"),
              HasSubstr("\"text_config.vocab_size\" is missing"));
  EXPECT_THAT(error_of(R"({"text_config": {"vocab_size": "9"}})"),
              HasSubstr("\"text_config.vocab_size\" is neither"));
  EXPECT_THAT(
      error_of(
          R"({"text_config": {"vocab_size": 9}, "vision_config": {"image_size": [448, 224]}})"),
      HasSubstr("\"vision_config.image_size\" is neither"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(data_error_of([&] { read_model_facts(folder.path() / "absent"); }),
              HasSubstr("absent/config.json"));
}

}  // namespace
}  // namespace shardloom::data
