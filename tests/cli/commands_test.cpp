#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

TEST(Commands, HelpOfEveryCommandHasAnExample) {
  EXPECT_EQ(shardloom({"--help"}).exit_code, 0);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"train"},
                                             {"check"},
                                             {"data", "show"},
                                             {"data", "check"},
                                             {"tokenize"},
                                             {"inspect"},
                                             {"convert", "hf_to_dcp"},
                                             {"convert", "dcp_to_hf"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    const ProcessResult run = shardloom(arguments);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_NE(run.out.find("Example"), std::string::npos) << run.out;
  }
}

TEST(Commands, UnknownCommandOrOptionIsAUsageError) {
  EXPECT_EQ(shardloom({}).exit_code, 2);
  EXPECT_EQ(shardloom({"trian"}).exit_code, 2);
  EXPECT_EQ(shardloom({"train", kTrajectory, "--nprocs", "2"}).exit_code, 2);
}

TEST(Commands, CheckAcceptsTheExamplesAndExplainsEveryValue) {
  for (const char* config :
       {kTrajectory, "examples/tiny/train.yaml", "tests/data/validation.yaml"}) {
    const ProcessResult run = shardloom({"check", config, "training.lr=5e-4", "--explain"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_NE(run.out.find("override"), std::string::npos);
    EXPECT_NE(run.out.find(config), std::string::npos);
    EXPECT_NE(run.out.find("default"), std::string::npos);
  }
}

TEST(Commands, CheckKnowsTheSizesOfAWorld) {
  EXPECT_EQ(shardloom({"check", kTrajectory, "--world", "4"}).exit_code, 0);
  const ProcessResult run =
      shardloom({"check", kTrajectory, "--world", "4", "training.global_batch_size=6",
                 "model.freeze=[vision_model.layers.{*}]"});
  EXPECT_EQ(run.exit_code, 2);
  for (const char* word :
       {"training.global_batch_size is 6", "data-parallel size 4", "vision_model.layers.{*}"})
    EXPECT_NE(run.err.find(word), std::string::npos) << "no \"" << word << "\" in: " << run.err;
}

TEST(Commands, CheckNeedsNoWeights) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model/config.json",
                             folder.path() / "config.json");
  const ProcessResult run =
      shardloom({"check", kTrajectory, "model.model_name_or_path=" + folder.path().string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(Commands, TokenizeBothWays) {
  ProcessOptions options;
  options.input = "{\"text\": \"a red bus\"}\n{\"text\": \"<img>\"}\n";
  const ProcessResult there = shardloom({"tokenize", "--model", "examples/tiny/model"}, options);
  ASSERT_EQ(there.exit_code, 0) << there.err;
  options.input = there.out;
  const ProcessResult back =
      shardloom({"tokenize", "--model", "examples/tiny/model", "--decode"}, options);
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(Json::parse(back.out.substr(0, back.out.find('\n')))["text"], "a red bus");
}

TEST(Commands, DataShowGivesIdsLabelsAndPixelHashes) {
  const ProcessResult run = shardloom({"data", "show", kTrajectory, "--index", "0", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["input_ids"].size(), json["labels"].size());
  EXPECT_EQ(json["images"][0]["tile_sha256"][0].get<std::string>().size(), 64u);
  EXPECT_EQ(shardloom({"data", "show", kTrajectory, "--index", "0"}).exit_code, 0);
  EXPECT_EQ(shardloom({"data", "show", kTrajectory, "--index", "252"}).exit_code, 2);
}

TEST(Commands, DataCheckOfTheEmbeddedSetFindsNothing) {
  const ProcessResult run = shardloom({"data", "check", kTrajectory, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["samples"], 252);
  EXPECT_TRUE(json["bad"].empty());
}

TEST(Commands, ReferenceIsTheCommittedPage) {
  const ProcessResult run = shardloom({"check", "--reference"});
  std::ifstream file(std::string(SHARDLOOM_SOURCE_DIR) + "/docs/config.md");
  const std::string committed((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(run.out, committed) << "run: shardloom check --reference > docs/config.md";
}

}  // namespace
}  // namespace shardloom::testing
