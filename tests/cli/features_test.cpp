// Every way to cut and to save memory gives the training of one process: {none, cp2, ep2,
// recompute, chunk_loss, offload, all}, alone and together.
#include <map>

#include "tests/cli/golden_losses.h"

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

std::vector<double> column(const std::vector<Json>& rows, const char* key) {
  std::vector<double> values;
  for (const Json& row : rows) values.push_back(row[key].get<double>());
  return values;
}

class GoldenTrajectory : public ::testing::TestWithParam<std::pair<const char*, Overrides>> {};

TEST_P(GoldenTrajectory, OnTwoRanks) {
  const TemporaryFolder folder;
  const Overrides& features = GetParam().second;
  const bool cut = std::find(features.begin(), features.end(), kCp2[0]) != features.end();
  const auto rows = run(
      kTrajectory, folder.path(),
      features + Overrides{cut ? "training.micro_batch_size=2" : "training.micro_batch_size=1"} +
          ranks(2));
  expect_golden_losses(column(rows, "loss"));
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
  // The golden trajectory; larger batches in the shuffled order. (Unshuffled, at step 64, the
  // choice between two experts of one of their tokens hangs on the last bits of the weights.)
  const std::map<int, Overrides> batches = {{2, {}}, {4, {"data.dataloader_param.shuffle=true"}}};
  const auto micro_batch = [](int size) {
    return Overrides{"training.micro_batch_size=" + std::to_string(size)};
  };
  std::map<int, std::vector<Json>> one;
  for (const auto& [batch, order] : batches) {
    one[batch] =
        run(kTrajectory, folder.path() / "one" / std::to_string(batch), order + micro_batch(batch));
  }
  const auto follow = [&](const char* name, const Overrides& layout, int batch) {
    SCOPED_TRACE(name);
    const auto rows = run(kTrajectory, folder.path() / name,
                          batches.at(batch) + layout + ranks(4) + micro_batch(1));
    expect_close(column(rows, "loss"), column(one[batch], "loss"));
    expect_close(column(rows, "grad_norm"), column(one[batch], "grad_norm"));
  };
  const Overrides ep4 = {"parallel.expert_parallel_size=4"};
  follow("cp2 dp2", kCp2, 2);
  follow("cp2 ep4", kCp2 + ep4, 2);
  follow("ep2 dp4", kEp2, 4);
  follow("ep4", ep4, 4);
  follow("ep2 with two shards and replicas",
         kEp2 + Overrides{"parallel.expert_data_parallel_size=2"}, 4);
}

// Counted before tokens travel, each token once: not again in recomputation, and not by two ranks.
TEST(Features, ExpertLoadIsThatOfOneProcess) {
  const TemporaryFolder folder;
  const auto load = [&](const char* name, const Overrides& layout, int micro, int accumulated) {
    return run(kTrajectory, folder.path() / name,
               steps(1) + layout +
                   Overrides{"training.micro_batch_size=" + std::to_string(micro),
                             "training.gradient_accumulation_steps=" +
                                 std::to_string(accumulated)})[0]["expert_load"];
  };
  const Json one = load("one", {}, 4, 1);
  ASSERT_EQ(one["max_over_mean"].size(), 4u);
  ASSERT_EQ(one["unused"].size(), 4u);
  for (const Json& ratio : one["max_over_mean"]) EXPECT_GE(ratio.get<double>(), 1.0);
  EXPECT_EQ(load("accumulated", {}, 2, 2), one);
  EXPECT_EQ(load("recompute", kRecompute, 4, 1), one);
  EXPECT_EQ(
      load("reentrant", kRecompute + Overrides{"features.recompute_plan.use_reentrant=true"}, 4, 1),
      one);
  EXPECT_EQ(load("ep2", kEp2 + ranks(2), 2, 1), one);
  EXPECT_EQ(load("cp2", kCp2 + ranks(2), 4, 1), one);
}

TEST(Features, OffloadTellsWhatItMoves) {
  const TemporaryFolder folder;
  const auto rows = run(kTrajectory, folder.path(), steps(2) + kOffload);
  for (const Json& row : rows) {
    const Json& offload = row["offload"];
    EXPECT_GT(offload["bytes_to_host"].get<int64_t>(), 0);
    EXPECT_EQ(offload["bytes_to_host"], offload["bytes_to_device"]);
  }
  EXPECT_EQ(rows[0]["offload"]["bytes_to_host"], rows[1]["offload"]["bytes_to_host"]);
}

TEST(Features, DispatchersGiveTheSameTraining) {
  const TemporaryFolder folder;
  const Overrides base = steps(20) + kEp2 + ranks(2) + Overrides{"training.micro_batch_size=1"};
  const auto all_to_all = run(kTrajectory, folder.path() / "a", base);
  const auto all_gather = run(kTrajectory, folder.path() / "b",
                              base + Overrides{"parallel.ep_plan.dispatcher=allgather"});
  expect_close(column(all_gather, "loss"), column(all_to_all, "loss"));
  expect_close(column(all_gather, "grad_norm"), column(all_to_all, "grad_norm"));
}

TEST(Features, ExportOfExpertShardsIsThatOfOneProcess) {
  const TemporaryFolder folder;
  const auto weights = [&](const char* name, const Overrides& overrides) {
    run(kTrajectory, folder.path() / "metrics",
        Overrides{"training.train_iters=1", "training.lr=0.0",
                  "training.save=" + (folder.path() / name).string(), "training.save_format=hf",
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
