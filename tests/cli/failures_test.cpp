// What a user does wrong, and what happens to the run: exit codes and messages.
#include <fstream>

#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

using ::testing::Test;

void expect_failure(const ProcessResult& run, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(run.exit_code, code) << run.err;
  for (const auto& word : words)
    EXPECT_NE(run.err.find(word), std::string::npos) << "no \"" << word << "\" in: " << run.err;
}

TEST(Failures, EveryConfigurationErrorAtOnceWithItsPlace) {
  for (const char* command : {"train", "check"}) {
    const ProcessResult run =
        shardloom({command, "tests/data/trajectory.yaml", "training.learning=1",
                   "training.micro_batch_size=0", "features.recompte=true"});
    expect_failure(run, 2,
                   {"training.learning", "training.micro_batch_size", "did you mean recompute"});
  }
}

TEST(Failures, MissingFileOfTheConfiguration) {
  expect_failure(shardloom({"train", "no/such.yaml"}), 2, {"no/such.yaml"});
  expect_failure(shardloom({"check", kTrajectory,
                            "data.dataset_param.basic_parameters.dataset=no/data.jsonl"}),
                 2, {"no/data.jsonl", "data.dataset_param.basic_parameters.dataset"});
}

TEST(Failures, PatternWithoutAModule) {
  for (const char* command : {"train", "check"}) {
    expect_failure(
        shardloom({command, kTrajectory, "model.freeze=[language_model.model.layers.{4-6}]"}), 2,
        {"model.freeze", "language_model.model.layers.{4-6}"});
  }
}

// Plans that would train another model, or read parameters that are not gathered.
TEST(Failures, PlansThatDoNotFitTogether) {
  const std::string layers = "language_model.model.layers.{*}";
  const std::string units = "parallel.fsdp_plan.apply_modules=";
  const std::string efsdp = "parallel.ep_plan.apply_efsdp_modules=";
  const std::string ep = "parallel.expert_parallel_size=2";
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {{ep, efsdp + "[language_model.model.layers.0.mlp.experts]"},
       {"parallel.ep_plan.apply_efsdp_modules", "layers.1.mlp.experts is missing"}},
      {{ep, efsdp + "[\"" + layers + ".mlp\"]"},
       {"parallel.ep_plan.apply_efsdp_modules", "layers.0.mlp is none of"}},
      {{ep, "parallel.fsdp_plan.ignored_modules=[language_model.model.layers.1.mlp]"},
       {"parallel.fsdp_plan.ignored_modules", "layers.1.mlp.experts is cut among ranks"}},
      {{units + "[language_model.model]"},
       {"parallel.fsdp_plan.apply_modules", "language_model.model.embed_tokens by itself"}},
      {{units + "[language_model.model.embed_tokens, \"" + layers + "\"]",
        "parallel.fsdp_plan.hook_modules=[language_model.model]"},
       {"parallel.fsdp_plan.hook_modules", "language_model.model.embed_tokens"}},
      {{"model.freeze=[vision_model, mlp1, language_model]"}, {"model.freeze", "left to train"}}};
  for (const auto& [overrides, texts] : cases) {
    std::vector<std::string> command = {"check", kTrajectory, "--world", "2"};
    command.insert(command.end(), overrides.begin(), overrides.end());
    expect_failure(shardloom(command), 2, texts);
  }
  // Embeddings as a unit of their own are gathered in time.
  const ProcessResult good =
      shardloom({"check", kTrajectory, "--world", "2",
                 units + "[language_model.model.embed_tokens, language_model.model]"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
}

TEST(Failures, BadSampleStopsWithFileAndLine) {
  const TemporaryFolder folder;
  const auto data =
      folder.write("bad.jsonl",
                   "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
                   "\"gpt\", \"value\": \"b\"}]}\n"
                   "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
                   "\"gpt\", \"value\": \"b\"}]}\n"
                   "{\"image\": \"missing.png\", \"conversations\": [{\"from\": \"human\", "
                   "\"value\": \"<image>a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}\n"
                   "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
                   "\"gpt\", \"value\": \"b\"}]}\n");
  const std::vector<std::string> overrides = {
      "data.dataset_param.basic_parameters.dataset=" + data.string(), "training.train_iters=2"};
  const ProcessResult run = train(kTrajectory, folder.path() / "m", overrides);
  expect_failure(run, 3, {data.string() + ":3", "missing.png"});
  EXPECT_EQ(losses(folder.path() / "m").size(), 1u);  // the step before stands in the log

  auto skip = overrides;
  skip.push_back("data.dataset_param.on_bad_sample=skip");
  const ProcessResult skipping = train(kTrajectory, folder.path() / "s", skip);
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_NE(skipping.err.find(data.string() + ":3"), std::string::npos);
  EXPECT_EQ(read_metrics(folder.path() / "s")[1]["skipped_samples"], 1);
}

TEST(Failures, BadValidationSampleStopsOrIsSkipped) {
  const TemporaryFolder folder;
  const auto data = folder.write("val.jsonl", kGoodRecord + kBadRecord + kGoodRecord);
  const auto run_with = [&](const char* on_bad) {
    return train(kTrajectory, folder.path() / on_bad,
                 {"training.train_iters=1", "training.val_interval=1",
                  "data.val_dataset_param={dataset_type: internvl3_5, on_bad_sample: " +
                      std::string(on_bad) + ", basic_parameters: {dataset: " + data.string() +
                      ", cutoff_len: 256}}"});
  };
  expect_failure(run_with("stop"), 3, {data.string() + ":2"});
  const ProcessResult skipping = run_with("skip");
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_NE(skipping.err.find("validation sample skipped: " + data.string() + ":2"),
            std::string::npos)
      << skipping.err;
  EXPECT_GT(read_metrics(folder.path() / "skip").back()["validation_loss"].get<double>(), 0.0);
}

TEST(Failures, EpochsWithoutAStep) {
  const TemporaryFolder folder;
  const auto data = folder.write("few.jsonl", kGoodRecord + kGoodRecord + kGoodRecord);
  expect_failure(train(kTrajectory, folder.path() / "m",
                       {"data.dataset_param.basic_parameters.dataset=" + data.string(),
                        "training.train_epochs=2", "training.micro_batch_size=2",
                        "training.gradient_accumulation_steps=2"}),
                 3, {"few.jsonl", "3 samples", "global batch"});
}

TEST(Failures, NoSamplesOrTooFew) {
  const TemporaryFolder folder;
  for (const char* content : {"",
                              "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, "
                              "{\"from\": \"gpt\", \"value\": \"b\"}]}\n"}) {
    const auto data = folder.write("few.jsonl", content);
    expect_failure(train(kTrajectory, folder.path() / "m",
                         {"data.dataset_param.basic_parameters.dataset=" + data.string()}),
                   3, {});
  }
}

class BrokenWeights : public Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model", model_,
                          std::filesystem::copy_options::recursive);
  }
  ProcessResult run(const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = {"training.train_iters=1",
                                          "training.load=" + model_.string()};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return train(kTrajectory, folder_.path() / "m", overrides);
  }
  TemporaryFolder folder_;
  std::filesystem::path model_ = folder_.path() / "model";
};

TEST_F(BrokenWeights, CutFile) {
  const auto shard = model_ / "model-00002-of-00003.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 10);
  expect_failure(run(), 4, {"model-00002-of-00003.safetensors"});
}

TEST_F(BrokenWeights, MissingShard) {
  std::filesystem::remove(model_ / "model-00003-of-00003.safetensors");
  expect_failure(run(), 4, {"model-00003-of-00003.safetensors"});
}

TEST_F(BrokenWeights, OtherShapeAndMissingKeys) {
  std::ifstream in(model_ / "config.json");
  Json config = Json::parse(in);
  config["llm_config"]["num_experts"] = 9;
  std::ofstream(model_ / "config.json") << config;
  const std::vector<std::string> use_config = {"model.model_name_or_path=" + model_.string()};
  expect_failure(run(use_config), 4,
                 {"missing", "experts.8.gate_proj", "of another shape", "mlp.gate.weight"});
}

TEST(Failures, NonFiniteLossStopsWithStepAndSamplesOrIsSkipped) {
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = {"training.train_iters=8", "training.lr=1.0e30",
                                              "training.lr_warmup_ratio=0.0",
                                              "training.clip_grad=0.0"};
  const ProcessResult run = train(kTrajectory, folder.path() / "a", overrides);
  expect_failure(run, 70, {"iteration ", "train.jsonl:", "training.on_nan"});
  auto skip = overrides;
  skip.push_back("training.on_nan=skip");
  const ProcessResult skipping = train(kTrajectory, folder.path() / "b", skip);
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_NE(skipping.err.find("The step is skipped"), std::string::npos);
}

TEST(Failures, InterruptEndsCleanlyAndSaves) {
  const TemporaryFolder folder;
  ProcessOptions options;
  options.interrupt_after_lines = 5;  // four steps and the memory line
  const auto save = folder.path() / "save";
  const ProcessResult run =
      train(kTrajectory, folder.path() / "m",
            {"training.train_iters=100000", "training.save=" + save.string()}, options);
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_GE(losses(folder.path() / "m").size(), 4u);
  EXPECT_TRUE(std::filesystem::exists(save / "latest_checkpointed_iteration.txt"));
}

TEST(Failures, SaveIntoAPlaceThatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  expect_failure(train(kTrajectory, folder.path() / "m",
                       {"training.train_iters=1", "training.save=" + (file / "x").string()}),
                 2, {file.string()});
}

}  // namespace
}  // namespace shardloom::testing
