// The Megatron-style path: the program pretrain_transformers beside `shardloom train`, and a
// program of a user's own.
#include <gmock/gmock.h>

#include <algorithm>
#include <regex>

#include "shardloom/base/files.h"
#include "tests/cli/checkpoint_runs.h"
#include "tests/cli/golden_losses.h"

namespace shardloom::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Flags = std::vector<std::string>;

// The golden trajectory.
const Flags kTrajectoryFlags = {"--use-torch-fsdp2",
                                "--ckpt-format",
                                "torch_dcp",
                                "--untie-embeddings-and-output-weights",
                                "--mm-model",
                                "tests/data/megatron/model.json",
                                "--mm-data",
                                "tests/data/megatron/data.json",
                                "--lr",
                                "1e-3",
                                "--min-lr",
                                "0",
                                "--lr-decay-style",
                                "cosine",
                                "--weight-decay",
                                "0",
                                "--clip-grad",
                                "1.0",
                                "--seed",
                                "42",
                                "--seq-length",
                                "256",
                                "--num-workers",
                                "1",
                                "--log-interval",
                                "1"};

Flags steps_flags(int count, int micro_batch_size = 1) {
  return {"--train-iters",       std::to_string(count),
          "--micro-batch-size",  std::to_string(micro_batch_size),
          "--global-batch-size", "2"};
}
Flags units(const std::string& file = "fsdp2_config.yaml") {
  return {"--fsdp2-config-path", "tests/data/megatron/" + file};
}

ProcessResult program(const std::string& name, Flags flags) {
  flags.insert(flags.begin(), std::string(SHARDLOOM_BIN_DIR) + "/" + name);
  return run_process(flags, kOneThread);
}

// With its metrics in `folder`.
ProcessResult pretrain(const std::filesystem::path& folder, const Flags& flags, int exit_code = 0) {
  ProcessResult result = program(
      "pretrain_transformers", kTrajectoryFlags + flags + Flags{"--metrics-dir", folder.string()});
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  return result;
}

TEST(Pretrain, MeetsTheGoldenTrajectoryByItself) {
  const TemporaryFolder folder;
  pretrain(folder.path(),
           units() + steps_flags(200) + Flags{"--lr-warmup-fraction", "0.1"} + ranks(2));
  expect_golden_losses(losses(folder.path()));
}

class BothPaths : public ::testing::TestWithParam<int> {};

TEST_P(BothPaths, TrainBitEqual) {
  const TemporaryFolder yaml, megatron;
  const Overrides number = ranks(GetParam());
  const std::string micro = GetParam() == 1 ? "2" : "1";
  run(yaml.path(), steps(30) + Overrides{"training.micro_batch_size=" + micro} + number);
  pretrain(megatron.path(), units() + steps_flags(30, std::stoi(micro)) + number);
  const auto expected = read_metrics(yaml.path());
  ASSERT_EQ(expected.size(), 30u);
  expect_same_rows(read_metrics(megatron.path()), expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, BothPaths, ::testing::Values(1, 2));

// Recomputation, other units and prefetch change no bit; experts over two ranks change the order of
// sums.
TEST(Pretrain, FeaturesOfTheConfigFile) {
  const TemporaryFolder plain, features;
  pretrain(plain.path(), units() + steps_flags(30) + ranks(2));
  pretrain(features.path(), units("fsdp2_features.yaml") + steps_flags(30) + ranks(2));
  const auto a = losses(plain.path()), b = losses(features.path());
  ASSERT_EQ(a.size(), 30u);
  ASSERT_EQ(b.size(), 30u);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * a[i]) << "step " << i + 1;
}

TEST(Pretrain, GoesOnFromACheckpointOfEitherPath) {
  const TemporaryFolder whole, yaml, first, second, saved;
  const auto load = [&](const char* name) {
    return Flags{"--load", (saved.path() / name).string()};
  };
  pretrain(whole.path(), units() + steps_flags(20) + ranks(2));
  const auto expected = read_metrics(whole.path());

  // The length of the schedule stands in the checkpoint; here it is that of the whole run.
  pretrain(first.path(),
           units() + steps_flags(20) + ranks(2) +
               Flags{"--save", (saved.path() / "m").string(), "--save-interval", "10"});
  run(yaml.path(), steps(20) + ranks(2) + save_to(saved.path() / "y", 10));
  for (const char* name : {"m", "y"}) {
    const TemporaryFolder rest;
    write_file_atomically(saved.path() / name / "latest_checkpointed_iteration.txt", "10");
    pretrain(rest.path(), units() + steps_flags(20) + ranks(2) + load(name));
    const auto rows = read_metrics(rest.path());
    ASSERT_EQ(rows.size(), 10u) << name;
    expect_same_rows(rows, expected);
  }
}

TEST(Pretrain, TheLastRankPrintsMegatronsLine) {
  const TemporaryFolder folder;
  const ProcessResult result =
      pretrain(folder.path(), units() + steps_flags(3) + ranks(2) + Flags{"--log-tps"});
  const std::regex line(
      R"(\[rank 1\]  \[[-0-9: ]+\] iteration        2/       3 \| consumed samples:            4 \| )"
      R"(elapsed time per iteration \(ms\): [0-9.]+ \| learning rate: [0-9.E+-]+ \| )"
      R"(global batch size:     2 \| tokens per sample: [0-9.E+]+ \| loss: [0-9.E+]+ \| )"
      R"(loss scale: 1.0 \| grad norm: [0-9.]+ \| number of skipped iterations:   0 \| )"
      R"(number of nan iterations:   0 \|)");
  EXPECT_TRUE(std::regex_search(result.out, line)) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[Rank 0] (after 2 iterations) memory (MB)"),
                                HasSubstr("[Rank 1] (after 2 iterations) memory (MB)")));
}

TEST(Pretrain, FaultsAreToldAtOnceBeforeAnythingStarts) {
  const ProcessResult result =
      program("pretrain_transformers",
              kTrajectoryFlags + units() + steps_flags(3) +
                  Flags{"--lr-warmup-fractoin", "0.1", "--tensor-model-parallel-size", "2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("--lr-warmup-fractoin"), HasSubstr("--lr-warmup-fraction"),
                    HasSubstr("--tensor-model-parallel-size")));

  const ProcessResult file =
      program("pretrain_transformers", kTrajectoryFlags + units("no.yaml") + steps_flags(3));
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err, HasSubstr("tests/data/megatron/no.yaml"));

  const TemporaryFolder folder;
  const auto plan = folder.write("plan.yaml",
                                 "sharding_size: auto\n"
                                 "sub_modules_to_wrap:\n"
                                 "  - language_model.model.layerz.{*}\n");
  const ProcessResult pattern =
      program("pretrain_transformers", kTrajectoryFlags + steps_flags(3) + ranks(2) +
                                           Flags{"--fsdp2-config-path", plan.string()});
  EXPECT_EQ(pattern.exit_code, 2);
  EXPECT_THAT(pattern.err, AllOf(HasSubstr("plan.yaml:"),
                                 HasSubstr("did you mean language_model.model.layers")));
}

// The rooms below speak of the keys of the YAML path.
TEST(Pretrain, FaultsOfARunAreToldInFlagsAndKeysOfTheFiles) {
  const TemporaryFolder folder;
  int files = 0;
  const auto plan = [&](const std::string& text) {
    return Flags{"--fsdp2-config-path",
                 folder.write(fmt::format("{}_plan.yaml", ++files), text).string()};
  };
  const auto data = [&](const std::string& dataset) {
    return Flags{"--mm-data", folder
                                  .write(fmt::format("{}_data.json", ++files),
                                         R"({"dataset_param": {)" + dataset + "}}")
                                  .string()};
  };
  const std::string samples =
      R"("data_path": "examples/tiny/data/train.jsonl", "data_folder": "examples/tiny/data")";
  const struct {
    Flags flags;
    int exit_code;
    std::string error;
  } cases[] = {
      {units() + Flags{"--save", "/proc/x"}, 2, "--save /proc/x: cannot write to /proc/x"},
      {units() + Flags{"--load", "no/such"}, 2, "--load no/such: the folder "},
      {units() + Flags{"--seq-length", "8"}, 3,
       "but --seq-length is 8; raise --seq-length or lower dataset_param.max_dynamic_patch"},
      {plan("sub_modules_to_wrap: [language_model.model.layers]\n"), 2,
       "plan.yaml:1:22: sub_modules_to_wrap: language_model.model.layers is a list of modules"},
      {plan("recompute_modules: [language_model.model.layers]\n"), 2, "plan.yaml:1:20: "},
      {plan("sub_modules_to_wrap: [mlp2]\n"), 2,
       "plan.yaml:1:22: sub_modules_to_wrap: pattern \"mlp2\": matches no module"},
      {plan("sharding_size: auto\nexpert_parallel_size: 2\n"
            "moe_modules: [\"language_model.model.layers.{*}.mlp\"]\n") +
           ranks(2),
       2, "plan.yaml:3:14: moe_modules: language_model.model.layers.0.mlp does not hold experts"},
      {units() + data(R"("dataset_type": "video", "basic_parameters": {)" + samples + "}"), 2,
       "data.json:1:36: dataset_param.dataset_type \"video\" is not known"},
      {units() +
           data(R"("dataset_type": "multimodal", "basic_parameters": {"repeat_time": 0.001, )" +
                samples + "}"),
       2, "repeat_time 0.001 leaves none of the 252 samples of examples/tiny/data/train.jsonl"},
      {units() +
           data(R"("dataset_type": "multimodal", "basic_parameters": [{)" + samples +
                R"(}, {"data_path": "no.jsonl"}])") +
           ranks(2),
       2, "data.json:1:"},
  };
  for (const auto& one : cases) {
    // The case's own flags instead of the same of the trajectory.
    Flags flags;
    const Flags base = kTrajectoryFlags + steps_flags(3);
    for (size_t i = 0; i < base.size(); ++i) {
      const bool replaced = std::count(one.flags.begin(), one.flags.end(), base[i]) > 0;
      if (replaced && base[i].starts_with("--")) {
        ++i;
      } else {
        flags.push_back(base[i]);
      }
    }
    const ProcessResult result = program("pretrain_transformers", flags + one.flags);
    EXPECT_EQ(result.exit_code, one.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(one.error));
    EXPECT_THAT(result.err, Not(AnyOf(HasSubstr("training."), HasSubstr("parallel."))));
  }
}

TEST(Pretrain, AModelThatNobodyKnowsIsNamedByItsPlace) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  const auto model = folder.write("model.json", R"({"model_id": "internvi",
 "init_from_hf_path": ")" + folder.path().string() + R"("})");
  Flags flags = kTrajectoryFlags;
  *std::find(flags.begin(), flags.end(), "tests/data/megatron/model.json") = model.string();
  const ProcessResult result = program("pretrain_transformers", flags + units() + steps_flags(3));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("model.json:1:14: model_id \"internvi\" is not known"));
}

TEST(Pretrain, HelpNamesEveryFlagAndAnExample) {
  const ProcessResult result = program("pretrain_transformers", {"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("--fsdp2-config-path"), HasSubstr("--nproc"), HasSubstr("Example")));
}

TEST(Pretrain, AModelOfOnesOwnTrainsThroughTheMixin) {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_process({std::string(SHARDLOOM_SOURCE_DIR) + "/examples/custom_model/train.sh",
                   "--metrics-dir", folder.path().string()},
                  {.environment = {"OMP_NUM_THREADS=1", "TRAIN_ITERS=100",
                                   std::string("SHARDLOOM_BIN_DIR=") + SHARDLOOM_BIN_DIR}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json test = read_metrics(folder.path()).back();
  EXPECT_LT(test["test_loss"].get<double>(), 3.0);
  EXPECT_THAT(result.out, HasSubstr("validation loss at iteration 100 on test set"));
  const auto values = losses(folder.path());
  ASSERT_EQ(values.size(), 100u);
  EXPECT_GT(values.front(), 5.0);  // log of 256 bytes
  EXPECT_LT(values.back(), 3.0);   // what the byte before tells of source text
}

// model.json says random_init, for the first start.
TEST(Pretrain, AModelOfOnesOwnGoesOn) {
  const TemporaryFolder saved, first, second;
  const auto train = [&](const TemporaryFolder& folder, const Flags& flags) {
    const ProcessResult result =
        run_process(Flags{std::string(SHARDLOOM_SOURCE_DIR) + "/examples/custom_model/train.sh",
                          "--metrics-dir", folder.path().string()} +
                        flags,
                    {.environment = {"OMP_NUM_THREADS=1", "TRAIN_ITERS=20",
                                     std::string("SHARDLOOM_BIN_DIR=") + SHARDLOOM_BIN_DIR}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  train(first, {"--save", saved.path().string(), "--save-interval", "10"});
  train(second, {"--load", (saved.path() / "iter_0000010").string()});
  auto expected = losses(first.path());
  ASSERT_EQ(expected.size(), 20u);
  expected.erase(expected.begin(), expected.begin() + 10);
  EXPECT_EQ(losses(second.path()), expected);
}

}  // namespace
}  // namespace shardloom::testing
