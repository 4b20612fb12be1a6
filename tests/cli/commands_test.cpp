#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

TEST(Commands, HelpOfEveryCommandHasAnExample) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"train"},
                                             {"launch"},
                                             {"check"},
                                             {"data"},
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

TEST(Commands, SlipsOfTheCommandLineAreUnderstood) {
  const std::pair<std::vector<std::string>, const char*> slips[] = {
      {{"trian", kTrajectory}, "there is no command \"trian\" (did you mean train?)"},
      {{"data", "shwo"}, "there is no command \"shwo\" (did you mean show?)"},
      {{"train", kTrajectory, "--nprocs", "2"},
       "train has no option --nprocs (did you mean --nproc?)"},
      {{"check", kTrajectory, "--nproc", "2"}, "check has no option --nproc; here it is --world"},
      {{"train", kTrajectory, "--training.lr=1"}, "overridden without dashes"},
      {{"train", "training.lr=1", kTrajectory}, "the configuration stands first"},
      {{"train", kTrajectory, "--nproc", "0"},
       "--nproc: must be a whole number from 1 to 1000000, got 0\n"},
      {{"train", kTrajectory, "--nproc", "1.5"}, "whole number"},
      {{"check", kTrajectory, "--world", "x"}, "whole number"},
      {{"train", kTrajectory, "--nproc", "100000"}, "at most 16 a core"}};
  for (const auto& [arguments, message] : slips) {
    const ProcessResult run = shardloom(arguments);
    EXPECT_EQ(run.exit_code, 2) << message;
    EXPECT_NE(run.err.find(message), std::string::npos) << message << "\nis not in\n" << run.err;
  }
}

TEST(Commands, AResultThatCannotBeWrittenIsNoSuccess) {
  for (const char* command :
       {"check examples/tiny/train.yaml", "data show examples/tiny/train.yaml --index 0"}) {
    const ProcessResult run =
        run_process({"/bin/sh", "-c",
                     std::string(SHARDLOOM_BIN_DIR) + "/shardloom " + command + " >/dev/full"});
    EXPECT_EQ(run.exit_code, 70) << command;
    EXPECT_NE(run.err.find("could not be written"), std::string::npos) << run.err;
  }
}

// Weights and data may lie elsewhere while a configuration is written.
TEST(Commands, CheckWarnsOfWhatTrainingWouldLack) {
  const char* const config = "examples/tiny/train.yaml";
  const TemporaryFolder folder;
  const std::filesystem::path tiny = std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model";
  for (const char* name : {"config.json", "model.safetensors.index.json"})
    std::filesystem::copy_file(tiny / name, folder.path() / name);
  const ProcessResult run =
      shardloom({"check", config, "model.model_name_or_path=" + folder.path().string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("no tokenizer.json"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("model-00001-of-00003.safetensors"), std::string::npos) << run.err;

  const ProcessResult few = shardloom({"check", config, "training.micro_batch_size=500"});
  EXPECT_NE(few.err.find("252 samples, fewer than the 500"), std::string::npos) << few.err;
  EXPECT_EQ(shardloom({"check", config}).err, "");
  const ProcessResult type =
      shardloom({"check", config, "data.dataset_param.dataset_type=internvl"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_NE(type.err.find("unknown data.dataset_param.dataset_type"), std::string::npos);
  EXPECT_EQ(shardloom({"check", config, "data.dataset_param.image_size=100"}).exit_code, 2);
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
