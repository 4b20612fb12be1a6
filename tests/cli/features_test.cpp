// Every way to cut and to save memory gives the training of one process: {none, cp2, ep2,
// recompute, chunk_loss, offload, all}, alone and together.
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

using Overrides = std::vector<std::string>;

const ProcessOptions kOneThread = {.environment = {"OMP_NUM_THREADS=1"}};

Overrides operator+(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Overrides kCp2 = {"parallel.ulysses_parallel_size=2"};
const Overrides kEp2 = {"parallel.expert_parallel_size=2"};
const Overrides kRecompute = {"features.recompute=true"};
const Overrides kChunkLoss = {"features.enable_chunk_loss=true",
                              "features.chunkloss_plan.apply_module=language_model.lm_head",
                              "features.chunkloss_plan.chunk_size=16"};
const Overrides kOffload = {"features.enable_activation_offload=true"};

Overrides ranks(int count) { return {"--nproc", std::to_string(count)}; }

std::vector<Json> run(const std::string& config,
                      const std::filesystem::path& folder,
                      const Overrides& overrides) {
  const ProcessResult result = train(config, folder, overrides, kOneThread);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return read_metrics(folder);
}

// Two right fp32 implementations stay within a mean of 2e-7 and a maximum of 3e-6 over 200 steps.
void expect_close(const std::vector<double>& losses, const std::vector<double>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double error = std::abs(losses[i] - expected[i]) / expected[i];
    sum += error;
    EXPECT_LE(error, 1e-4) << "step " << i + 1;
  }
  EXPECT_LE(sum / static_cast<double>(losses.size()), 1e-5);
}

std::vector<double> column(const std::vector<Json>& rows, const char* key) {
  std::vector<double> values;
  for (const Json& row : rows) values.push_back(row[key].get<double>());
  return values;
}

class GoldenTrajectory : public ::testing::TestWithParam<std::pair<const char*, Overrides>> {};

TEST_P(GoldenTrajectory, OnTwoRanks) {
  const TemporaryFolder folder;
  const Json golden = read_json_file(std::string(SHARDLOOM_TEST_DATA) + "/golden/moe/golden.json",
                                     ExitCode::kInternal)["trajectory"]["values"];
  std::vector<double> expected;
  for (const Json& row : golden) expected.push_back(row[2]);
  const Overrides& features = GetParam().second;
  const bool cut = std::find(features.begin(), features.end(), kCp2[0]) != features.end();
  const auto rows = run(
      kTrajectory, folder.path(),
      features + Overrides{cut ? "training.micro_batch_size=2" : "training.micro_batch_size=1"} +
          ranks(2));
  expect_close(column(rows, "loss"), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Features,
    GoldenTrajectory,
    ::testing::Values(std::pair<const char*, Overrides>{"Cp2", kCp2},
                      std::pair<const char*, Overrides>{"Ep2", kEp2},
                      std::pair<const char*, Overrides>{"ChunkLoss", kChunkLoss},
                      std::pair<const char*, Overrides>{
                          "All", kCp2 + kEp2 + kRecompute + kChunkLoss + kOffload}),
    [](const auto& info) { return std::string(info.param.first); });

Overrides steps(int count) {
  return {"training.train_iters=" + std::to_string(count), "training.lr_warmup_ratio=0.0"};
}

TEST(Features, RecomputeAndOffloadChangeNoBit) {
  const TemporaryFolder folder;
  const Overrides base = steps(5) + Overrides{"training.micro_batch_size=1"} + ranks(2);
  const auto none = run(kTrajectory, folder.path() / "none", base);
  const std::vector<Overrides> variants = {
      kRecompute, kOffload, kRecompute + kOffload,
      kRecompute + Overrides{"features.recompute_plan.use_reentrant=true"}};
  for (size_t i = 0; i < variants.size(); ++i) {
    const auto rows = run(kTrajectory, folder.path() / std::to_string(i), variants[i] + base);
    EXPECT_EQ(column(rows, "loss"), column(none, "loss")) << i;
    EXPECT_EQ(column(rows, "grad_norm"), column(none, "grad_norm")) << i;
  }
}

TEST(Features, FourRanksFollowOneProcess) {
  const TemporaryFolder folder;
  const auto follow = [&](const char* name, const Overrides& layout, int batch, int micro) {
    const auto one =
        run(kTrajectory, folder.path() / name / "one",
            steps(20) + Overrides{"training.micro_batch_size=" + std::to_string(batch)});
    const auto rows = run(kTrajectory, folder.path() / name / "four",
                          steps(20) + layout + ranks(4) +
                              Overrides{"training.micro_batch_size=" + std::to_string(micro)});
    expect_close(column(rows, "loss"), column(one, "loss"));
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_NEAR(rows[i]["grad_norm"], one[i]["grad_norm"].get<double>(),
                  1e-4 * one[i]["grad_norm"].get<double>());
  };
  follow("cp2 dp2", kCp2, 2, 1);
  follow("ep2 dp4", kEp2, 4, 1);
  follow("ep4", {"parallel.expert_parallel_size=4"}, 4, 1);
  follow("cp2 ep4", kCp2 + Overrides{"parallel.expert_parallel_size=4"}, 2, 1);
  follow("ep2 with two shards and replicas",
         kEp2 + Overrides{"parallel.expert_data_parallel_size=2"}, 4, 1);
}

TEST(Features, ExportOfExpertShardsIsThatOfOneProcess) {
  const TemporaryFolder folder;
  const auto weights = [&](const char* name, const Overrides& overrides) {
    run(kTrajectory, folder.path() / "metrics",
        Overrides{"training.train_iters=1", "training.lr=0.0",
                  "training.save=" + (folder.path() / name).string(),
                  "training.save_ckpt_dtype=fp32"} +
            overrides);
    std::string bytes;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path() / name / "iter_0000001")) {
      if (entry.path().extension() != ".safetensors") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      bytes.append(std::istreambuf_iterator<char>(file), {});
    }
    return bytes;
  };
  const std::string one = weights("one", {"training.micro_batch_size=4"});
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(one == weights("ep", kEp2 + ranks(4) + Overrides{"training.micro_batch_size=1"}));
}

}  // namespace
}  // namespace shardloom::testing
