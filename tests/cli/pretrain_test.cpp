// The Megatron-style path: the program pretrain_transformers beside `shardloom train`, and a
// program of a user's own.
#include <gmock/gmock.h>

#include <regex>

#include "shardloom/base/files.h"
#include "tests/cli/checkpoint_runs.h"
#include "tests/cli/golden_losses.h"

namespace shardloom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace shardloom::testing
