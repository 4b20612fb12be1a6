// A run that goes on from a checkpoint against the run without a stop.
#include <fstream>
#include <map>

#include "tests/cli/checkpoint_runs.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

const Overrides kEp2 = {"parallel.expert_parallel_size=2"};
const Overrides kCp2 = {"parallel.ulysses_parallel_size=2",
                        "model.attn_implementation=flash_attention_2"};
const Overrides kTwoInOne = {"training.micro_batch_size=2"};

// Other layouts sum in another order, from step 31 on (at a step's first loss the two still agree
// to fp32 rounding).
void expect_close_rows(const std::vector<Json>& some, const std::vector<Json>& all) {
  ASSERT_FALSE(some.empty());
  const size_t first = some[0]["iteration"].get<size_t>();
  ASSERT_EQ(first + some.size() - 1, all.size());
  for (size_t i = 0; i < some.size(); ++i) {
    const Json& base = all[first - 1 + i];
    const double loss = base["loss"];
    EXPECT_NEAR(some[i]["loss"].get<double>(), loss, 1e-5 * loss) << "step " << first + i;
    for (const char* key : {"lr", "tokens", "consumed_samples"})
      EXPECT_EQ(some[i][key], base[key]) << key << " of step " << first + i;
  }
}

TEST(Resume, AnyLayoutGoesOnFromAnyOther) {
  const TemporaryFolder folder;
  const auto whole = [&](const char* name, const Overrides& layout) {
    run(folder.path() / name, steps(60) + layout + save_to(folder.path() / name / "save", 30));
    return read_metrics(folder.path() / name);
  };
  const auto resumed = [&](const std::string& from, const char* name, const Overrides& layout) {
    const fs::path metrics = folder.path() / (from + name);
    run(metrics, steps(60) + layout + resume_from(folder.path() / from / "save" / "iter_0000030"));
    return read_metrics(metrics);
  };
  const auto plain = whole("plain", ranks(2));
  ASSERT_EQ(plain.size(), 60u);
  expect_same_rows(resumed("plain", "2", ranks(2)), plain);
  // The same micro batches one after the other: the same bits.
  expect_same_rows(
      resumed("plain", "1", ranks(1) + Overrides{"training.gradient_accumulation_steps=2"}), plain);
  expect_close_rows(resumed("plain", "1mb2", ranks(1) + kTwoInOne), plain);
  expect_close_rows(resumed("plain", "ep2", ranks(2) + kEp2), plain);
  expect_close_rows(resumed("plain", "cp2", ranks(2) + kCp2 + kTwoInOne), plain);
  expect_close_rows(resumed("plain", "cp2dp2", ranks(4) + kCp2), plain);

  const auto experts = whole("ep2", ranks(2) + kEp2);
  expect_same_rows(resumed("ep2", "ep2", ranks(2) + kEp2), experts);
  expect_close_rows(resumed("ep2", "plain", ranks(2)), experts);
  expect_close_rows(resumed("ep2", "1", ranks(1) + kTwoInOne), experts);
}

TEST(Resume, ReplicasAndExpertShardsWriteEachRowOnce) {
  const TemporaryFolder folder;
  const Overrides four = {"training.global_batch_size=4"};
  const Overrides ep2 = {"parallel.expert_parallel_size=2"};
  const Overrides edp2 = {"parallel.expert_fully_shard_parallel_size=1",
                          "parallel.expert_data_parallel_size=2"};
  const Overrides replicas = {"parallel.fully_shard_parallel_size=2"};
  const std::map<std::string, Overrides> layouts = {
      {"replicas", replicas}, {"replicas and experts", replicas + ep2 + edp2}, {"shards", ep2}};
  for (const auto& [name, layout] : layouts) {
    const fs::path path = folder.path() / name;
    const Overrides all = steps(8) + four + layout + ranks(4);
    run(path, all + save_to(path / "save", 4));
    run(path / "resumed", all + resume_from(path / "save" / "iter_0000004"));
    expect_same_rows(read_metrics(path / "resumed"), read_metrics(path));
  }
}

// Five samples, two a step, shuffled: every stop is somewhere in an epoch of four.
TEST(Resume, EveryStopOfAShortEpochKeepsTheOrder) {
  const TemporaryFolder folder;
  std::ifstream rows(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/data/train.jsonl");
  std::string five, row;
  for (int i = 0; i < 5 && std::getline(rows, row); ++i) five += row + "\n";
  const auto data = folder.write("five.jsonl", five);
  const Overrides base =
      steps(13) + Overrides{"data.dataset_param.basic_parameters.dataset=" + data.string(),
                            "data.dataloader_param.shuffle=true",
                            "data.dataset_param.basic_parameters.cutoff_len=64",
                            "training.gradient_accumulation_steps=2"};
  const Overrides two = {"training.gradient_accumulation_steps=1", "--nproc", "2"};
  run(folder.path() / "all", base + two + save_to(folder.path() / "save", 1));
  const auto all = read_metrics(folder.path() / "all");
  for (int stop = 1; stop <= 12; ++stop) {
    const fs::path metrics = folder.path() / std::to_string(stop);
    char name[32];
    std::snprintf(name, sizeof name, "iter_%07d", stop);
    // One process, which by itself would use all five.
    run(metrics, base + resume_from(folder.path() / "save" / name));
    expect_same_rows(read_metrics(metrics), all);
  }
}

TEST(Resume, DropPathDrawsGoOnWithAnyNumberOfWorkers) {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model";
  fs::copy(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model", model);
  std::ifstream in(model / "config.json");
  Json config = Json::parse(in);
  config["vision_config"]["drop_path_rate"] = 0.5;
  std::ofstream(model / "config.json") << config;
  const Overrides base =
      steps(20) +
      Overrides{"model.model_name_or_path=" + model.string(), "training.load=" + model.string()} +
      ranks(2);
  run(folder.path() / "all", base + save_to(folder.path() / "save", 10));
  const auto all = read_metrics(folder.path() / "all");
  const auto from_ten = [&](const char* name, const Overrides& more) {
    run(folder.path() / name, base + resume_from(folder.path() / "save" / "iter_0000010") + more);
    return read_metrics(folder.path() / name);
  };
  for (const char* workers : {"0", "2"}) {
    expect_same_rows(
        from_ten(workers, {std::string("data.dataloader_param.num_workers=") + workers}), all);
  }
  EXPECT_NE(from_ten("fresh", {"training.no_load_rng=true"})[0]["loss"], all[10]["loss"]);
}

TEST(Resume, MetricsAndLogOfTheSameFolderGoOn) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save", metrics = folder.path() / "m";
  run(folder.path() / "all", steps(8) + ranks(2));
  // As if it had been killed after 8 with the save of 4 behind it: 5 to 8 are done again.
  const Overrides base = steps(8) + ranks(2);
  run(metrics, base + save_to(save, 4));
  fs::remove_all(save / "iter_0000008");
  std::ofstream(save / "latest_checkpointed_iteration.txt") << "4\n";
  const ProcessResult resumed = run(metrics, base + save_to(save, 4) + resume_from(save));
  const auto rows = read_metrics(metrics);
  ASSERT_EQ(rows.size(), 8u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i]["iteration"], i + 1);
  const auto all = read_metrics(folder.path() / "all");
  EXPECT_EQ(rows[7]["loss"], all[7]["loss"]);
  EXPECT_NE(resumed.out.find("iteration        5/       8 | consumed samples:           10"),
            std::string::npos)
      << resumed.out;
  expect_text(resumed, {"resuming", "after iteration 4 and 8 samples"});
  // Nothing is left to do; nothing is written again.
  const auto time = fs::last_write_time(save / "iter_0000008" / ".metadata");
  expect_text(run(metrics, base + save_to(save, 4) + resume_from(save)), {"nothing is left to do"});
  EXPECT_EQ(fs::last_write_time(save / "iter_0000008" / ".metadata"), time);
  EXPECT_EQ(read_metrics(metrics).size(), 8u);
}

TEST(Resume, InterruptedRunGoesOnWhereItStopped) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save", metrics = folder.path() / "m";
  const Overrides base = steps(40) + ranks(2);
  run(folder.path() / "all", base);
  ProcessOptions interrupt = kOneThread;
  interrupt.interrupt_after_lines = 5;
  run(metrics, base + save_to(save), 130, interrupt);
  const size_t stopped_at = read_metrics(metrics).size();
  EXPECT_GE(stopped_at, 4u);
  ASSERT_LT(stopped_at, 40u);
  run(metrics, base + save_to(save) + resume_from(save));
  expect_same_rows(read_metrics(metrics), read_metrics(folder.path() / "all"));
}

class ChangedSettings : public ::testing::Test {
 protected:
  ChangedSettings() {
    std::ifstream file(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/data/train.jsonl");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    data_ = folder_.write("train.jsonl", text);
    run(folder_.path() / "m", base_ + shuffled_ + save_to(folder_.path() / "save"));
  }

  ProcessResult resume(const Overrides& changes, int exit_code) {
    return run(folder_.path() / "r",
               base_ + shuffled_ + resume_from(folder_.path() / "save") + changes, exit_code);
  }

  const TemporaryFolder folder_;
  fs::path data_ = folder_.path() / "train.jsonl";
  const Overrides base_ =
      steps(3) + Overrides{"data.dataset_param.basic_parameters.dataset=" + data_.string(),
                           "training.gradient_accumulation_steps=2"};
  const Overrides shuffled_ = {"data.dataloader_param.shuffle=true"};
};

TEST_F(ChangedSettings, OtherDataAreRefused) {
  std::ofstream(data_, std::ios::app)
      << R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"
      << "\n";
  expect_text(resume({"training.train_iters=5"}, 4),
              {"cannot be resumed", "253 samples", "252 samples", "whose name is release"});
}

TEST_F(ChangedSettings, AnotherOrderIsRefused) {
  expect_text(resume({"training.seed=43"}, 4), {"training.seed is 43, in the checkpoint 42"});
  expect_text(resume({"data.dataloader_param.shuffle=false"}, 4),
              {"data.dataloader_param.shuffle is false, in the checkpoint true"});
  expect_text(resume({"data.dataloader_param.shuffle_seed=epoch"}, 4),
              {"shuffle_seed is epoch, in the checkpoint training"});
}

TEST_F(ChangedSettings, OtherBatchAndLengthAreAnnounced) {
  const ProcessResult result =
      resume({"training.train_iters=5", "training.global_batch_size=3",
              "training.gradient_accumulation_steps=3", "training.lr=1.0e-4"},
             0);
  expect_text(result, {"training.global_batch_size is 3, in the checkpoint 2",
                       "training.train_iters is 5, in the checkpoint 3",
                       "training.lr is 0.0001, in the checkpoint 0.001"});
  const auto rows = read_metrics(folder_.path() / "r");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["iteration"], 4);
  EXPECT_EQ(rows[0]["consumed_samples"], 9);
  // The cosine of five steps, not of three: 1e-4 * (1 + cos(pi * 3 / 5)) / 2.
  EXPECT_NEAR(rows[0]["lr"].get<double>(), 1e-4 * 0.5 * (1 + std::cos(M_PI * 0.6)), 1e-12);
}

// A run that has nothing left to do saves what it found, in another folder or layout.
TEST(Resume, SavingAgainWithoutAStepKeepsTheOptimizer) {
  const TemporaryFolder folder;
  const fs::path first = folder.path() / "first", second = folder.path() / "second";
  const auto count = [](int n) {
    return steps(n) + Overrides{"training.gradient_accumulation_steps=2"};
  };
  run(folder.path() / "m", count(2) + save_to(first));
  const ProcessResult again =
      run(folder.path() / "n", count(2) + resume_from(first) + save_to(second));
  expect_text(again, {"nothing to do after 2 steps"});
  run(folder.path() / "a", count(4) + resume_from(first));
  run(folder.path() / "b", count(4) + resume_from(second));
  const auto a = read_metrics(folder.path() / "a"), b = read_metrics(folder.path() / "b");
  ASSERT_EQ(a.size(), 2u);
  ASSERT_EQ(b.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(a[i]["loss"], b[i]["loss"]) << i;
}

TEST(Resume, WithoutOptimizerOrGeneratorsItMustBeSaid) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save";
  run(folder.path() / "m",
      steps(2) + save_to(save) +
          Overrides{"training.no_save_optim=true", "training.gradient_accumulation_steps=2"});
  const Overrides more = steps(4) + Overrides{"training.gradient_accumulation_steps=2"};
  expect_text(run(folder.path() / "a", more + resume_from(save), 4),
              {"no optimizer state", "training.no_load_optim"});
  const ProcessResult result =
      run(folder.path() / "b", more + resume_from(save) + Overrides{"training.no_load_optim=true"});
  expect_text(result, {"the optimizer starts afresh"});
  EXPECT_EQ(read_metrics(folder.path() / "b")[0]["iteration"], 3);

  run(folder.path() / "c",
      steps(2) + save_to(save) +
          Overrides{"training.no_save_rng=true", "training.gradient_accumulation_steps=2"});
  expect_text(run(folder.path() / "d", more + resume_from(save), 4),
              {"no state of the random generators", "training.no_load_rng"});
}

// Bad samples are counted on over a stop.
TEST(Resume, SkippedSamplesAreCountedOn) {
  const TemporaryFolder folder;
  const auto data =
      folder.write("data.jsonl", kGoodRecord + kBadRecord + kGoodRecord + kGoodRecord +
                                     kGoodRecord + kBadRecord + kGoodRecord + kGoodRecord);
  const Overrides base = steps(4) + kTwoInOne +
                         Overrides{"data.dataset_param.basic_parameters.dataset=" + data.string(),
                                   "data.dataset_param.on_bad_sample=skip"};
  run(folder.path() / "all", base + save_to(folder.path() / "save", 2));
  run(folder.path() / "on", base + resume_from(folder.path() / "save" / "iter_0000002"));
  const auto all = read_metrics(folder.path() / "all"), on = read_metrics(folder.path() / "on");
  ASSERT_FALSE(on.empty());
  EXPECT_EQ(on.back()["iteration"], 4);
  EXPECT_EQ(on.back()["skipped_samples"], all.back()["skipped_samples"]);
  EXPECT_GT(all.back()["skipped_samples"].get<int64_t>(), 1);
}

}  // namespace
}  // namespace shardloom::testing
