// 200 steps against transformers (tests/data/golden/moe/golden.json).
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

// Two right fp32 implementations stay within a mean of 2e-7 and a maximum of 3e-6; the limits leave
// room for other kernels.
void expect_golden(const std::filesystem::path& metrics_dir, size_t steps) {
  const Json golden = read_json_file(std::string(SHARDLOOM_TEST_DATA) + "/golden/moe/golden.json",
                                     ExitCode::kInternal);
  const Json& values = golden["trajectory"]["values"];
  const auto rows = read_metrics(metrics_dir);
  ASSERT_EQ(rows.size(), steps);
  double sum = 0;
  for (size_t i = 0; i < steps; ++i) {
    const double loss = values[i][2], norm = values[i][3];
    const double error = std::abs(rows[i]["loss"].get<double>() - loss) / loss;
    sum += error;
    EXPECT_LE(error, 1e-4) << "step " << i + 1;
    EXPECT_NEAR(rows[i]["grad_norm"].get<double>(), norm, 1e-3 * norm) << "step " << i + 1;
    EXPECT_NEAR(rows[i]["lr"].get<double>(), values[i][1].get<double>(), 1e-12) << "step " << i + 1;
    EXPECT_EQ(rows[i]["consumed_samples"].get<int64_t>(), static_cast<int64_t>(2 * (i + 1)));
  }
  EXPECT_LE(sum / static_cast<double>(steps), 1e-5);
}

TEST(Trajectory, OneMicroBatchOfTwo) {
  const TemporaryFolder folder;
  const ProcessResult run = train(kTrajectory, folder.path(), {});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_golden(folder.path(), 200);
}

TEST(Trajectory, TwoMicroBatchesOfOne) {
  const TemporaryFolder folder;
  const ProcessResult run =
      train(kTrajectory, folder.path(),
            {"training.micro_batch_size=1", "training.gradient_accumulation_steps=2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_golden(folder.path(), 200);
}

TEST(Trajectory, PaddingToTheLongestRowChangesNothing) {
  const TemporaryFolder folder;
  const ProcessResult run =
      train(kTrajectory, folder.path(), {"data.dataset_param.pad_to=longest"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_golden(folder.path(), 200);
}

TEST(Trajectory, TheSameCommandGivesTheSameBits) {
  const TemporaryFolder a, b;
  const std::vector<std::string> overrides = {"data.dataloader_param.shuffle=true",
                                              "training.lr_warmup_ratio=0.0"};
  ASSERT_EQ(train(kTrajectory, a.path(), overrides).exit_code, 0);
  auto more_workers = overrides;
  more_workers.push_back("data.dataloader_param.num_workers=3");
  ASSERT_EQ(train(kTrajectory, b.path(), more_workers).exit_code, 0);
  auto first = read_metrics(a.path()), second = read_metrics(b.path());
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "lr", "tokens"})
      EXPECT_EQ(first[i][key], second[i][key]) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace shardloom::testing
