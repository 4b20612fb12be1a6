// Checkpoints on disk: what is there after a save, a crash, a full disk.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>

#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/folder_lock.h"
#include "shardloom/checkpoint/save_root.h"
#include "tests/cli/checkpoint_runs.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

// Small enough that a save takes most of a step.
const Overrides kTiny = {"model.num_hidden_layers=2",
                         "data.dataset_param.basic_parameters.cutoff_len=64"};

TEST(Save, FolderAndNamesAreThoseOfTheReference) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save";
  run(folder.path() / "m", steps(4) + ranks(2) + save_to(save, 2));
  EXPECT_EQ(names_in(save), (std::set<std::string>{"iter_0000002", "iter_0000004",
                                                   "latest_checkpointed_iteration.txt"}));
  EXPECT_EQ(names_in(save / "iter_0000004"),
            (std::set<std::string>{".metadata", "__0_0.distcp", "__1_0.distcp"}));
  EXPECT_EQ(read_file(save / "latest_checkpointed_iteration.txt"), "4");
  const checkpoint::dcp::Reader reader(save / "iter_0000004");
  const auto& metadata = reader.metadata();
  const std::string expert = "language_model.model.layers.0.mlp.experts.gate_up_proj";
  for (const std::string& name : {"model." + expert, "optimizer.state." + expert + ".exp_avg",
                                  "optimizer.state." + expert + ".exp_avg_sq"}) {
    ASSERT_TRUE(metadata.tensors.contains(name)) << name;
    // 8 experts, hidden size 64, 48 inside each expert, gate and up side by side.
    EXPECT_EQ(metadata.tensors.at(name).shape.size(), 2u);
    EXPECT_EQ(metadata.tensors.at(name).chunks.size(), 2u);
  }
  EXPECT_EQ(metadata.tensors.at("optimizer.state." + expert + ".step").shape.size(), 0u);
  EXPECT_EQ(python_text(reader.value("optimizer.param_groups.0.betas")), "(0.9, 0.999)");
  EXPECT_EQ(python_text(reader.value("extra_state.iteration")), "4");
  EXPECT_EQ(python_text(reader.value("extra_state.consumed_train_samples")), "8");
  const checkpoint::dcp::StatePath path = {"optimizer", "param_groups", int64_t{0}, "lr"};
  EXPECT_EQ(metadata.planner_data.at("optimizer.param_groups.0.lr"), path);
}

TEST(Save, TheSameTensorsWithAndWithoutExpertParallelism) {
  const TemporaryFolder folder;
  std::vector<std::map<std::string, std::vector<int64_t>>> shapes;
  for (const char* ep : {"1", "2"}) {
    const fs::path save = folder.path() / ep;
    run(folder.path() / "m", steps(1) + ranks(2) + save_to(save) +
                                 Overrides{std::string("parallel.expert_parallel_size=") + ep});
    std::map<std::string, std::vector<int64_t>> of_this;
    for (const auto& [name, tensor] : checkpoint::dcp::read_metadata(save / "iter_0000001").tensors)
      of_this[name] = tensor.shape;
    shapes.push_back(std::move(of_this));
  }
  EXPECT_EQ(shapes[0], shapes[1]);
}

TEST(Save, InTheBackgroundTheFilesAreTheSame) {
  const TemporaryFolder folder;
  run(folder.path() / "m", steps(6) + ranks(2) + save_to(folder.path() / "sync", 2));
  const ProcessResult async =
      run(folder.path() / "n", steps(6) + ranks(2) + save_to(folder.path() / "async", 2) +
                                   Overrides{"training.save_async=true"});
  expect_text(async, {"save_async: ", "in the background"});
  expect_same_rows(read_metrics(folder.path() / "n"), read_metrics(folder.path() / "m"));
  for (const char* iteration : {"iter_0000002", "iter_0000004", "iter_0000006"}) {
    for (const char* file : {".metadata", "__0_0.distcp", "__1_0.distcp"}) {
      EXPECT_TRUE(read_file(folder.path() / "sync" / iteration / file) ==
                  read_file(folder.path() / "async" / iteration / file))
          << iteration << "/" << file;
    }
  }
  EXPECT_EQ(names_in(folder.path() / "sync"), names_in(folder.path() / "async"));
}

TEST(Save, KeepLastRemovesOlderOnes) {
  const TemporaryFolder folder;
  for (const char* async : {"false", "true"}) {
    const fs::path save = folder.path() / async;
    fs::create_directories(save / "release");
    fs::create_directories(save / "iter_0000900");
    fs::create_directories(save / "iter_0000001.tmp");
    run(folder.path() / "m",
        steps(5) + kTiny + ranks(2) + save_to(save, 1) +
            Overrides{"training.keep_last=2", std::string("training.save_async=") + async});
    EXPECT_EQ(names_in(save),
              (std::set<std::string>{"iter_0000004", "iter_0000005", "iter_0000900",
                                     "latest_checkpointed_iteration.txt", "release"}));
  }
}

TEST(Save, WeightsAloneTakeTheAskedTypeAndFormat) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save";
  run(folder.path() / "m",
      steps(1) + ranks(2) + save_to(save) + Overrides{"training.save_ckpt_dtype=bf16"});
  const auto metadata = checkpoint::dcp::read_metadata(save / "iter_0000001");
  for (const auto& [name, tensor] : metadata.tensors) {
    if (name.starts_with("model.")) {
      EXPECT_EQ(tensor.dtype, checkpoint::DType::kBF16) << name;
    }
    if (name.starts_with("optimizer.")) {
      EXPECT_EQ(tensor.dtype, checkpoint::DType::kF32) << name;
    }
  }
  run(folder.path() / "n", steps(2) + ranks(2) + resume_from(save));
  EXPECT_EQ(read_metrics(folder.path() / "n")[0]["iteration"], 2);
  // Loaded from Hugging Face files, and nothing but weights is to be saved: that format again.
  run(folder.path() / "o",
      steps(1) + ranks(2) + save_to(folder.path() / "hf") +
          Overrides{"training.no_save_optim=true", "training.no_save_rng=true"});
  EXPECT_TRUE(fs::exists(folder.path() / "hf" / "iter_0000001" / "config.json"));
}

// Their files would end up in one checkpoint.
TEST(Save, TwoRunsDoNotShareAFolder) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save";
  fs::create_directories(save);
  const auto lock = std::make_unique<checkpoint::FolderLock>(save);
  expect_text(run(folder.path() / "m", steps(1) + ranks(2) + save_to(save), 4),
              {save.string() + " is in use", "choose another folder"});
  EXPECT_TRUE(fs::is_empty(save));
}

TEST(Save, CheckpointsThatARunDoesNotGoOnFromAreToldOf) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save";
  const auto told = [&](const Overrides& more) {
    const ProcessResult result =
        run(folder.path() / "m", steps(3) + kTiny + ranks(2) + save_to(save) + more);
    return result.err.find("has checkpoints of up to iteration 3") != std::string::npos;
  };
  EXPECT_FALSE(told({}));
  EXPECT_FALSE(told(resume_from(save)));
  EXPECT_TRUE(told({}));
}

// Files of one rank may not grow beyond this; for that rank alone, once it trains.
ProcessOptions full_disk_of(int rank) {
  ProcessOptions options = kOneThread;
  options.interrupt_after_lines = 2;
  options.instead_of_interrupt = [rank](int launcher) {
    const int child = find_child(launcher, "RANK=" + std::to_string(rank));
    ASSERT_GT(child, 0);
    const rlimit limit{64 << 10, 64 << 10};
    ASSERT_EQ(::prlimit(child, RLIMIT_FSIZE, &limit, nullptr), 0);
  };
  return options;
}

TEST(Save, FullDiskOfOneRankIsAgreedOnByAll) {
  for (const char* async : {"false", "true"}) {
    const TemporaryFolder folder;
    const fs::path save = folder.path() / "save";
    run(folder.path() / "m", steps(1) + ranks(2) + save_to(save));
    const ProcessResult failed =
        run(folder.path() / "m",
            steps(100000) + ranks(2) + save_to(save, 10) + resume_from(save) +
                Overrides{std::string("training.save_async=") + async},
            4, full_disk_of(1));
    expect_text(failed, {"cannot write", "rank 1", "__1_0.distcp"});
    // All say the same, none waits for a peer that is gone.
    EXPECT_EQ(failed.err.find("exit code 5"), std::string::npos) << failed.err;
    const auto latest = checkpoint::read_latest(save);
    EXPECT_EQ(names_in(save).size(), checkpoint::saved_iterations(save).size() + 1) << failed.err;
    run(folder.path() / "n",
        steps(static_cast<int>(*latest.iteration) + 1) + ranks(2) + resume_from(save));
  }
}

// Each run is killed at some moment, mostly within a save, and the next one goes on from what the
// folder says: twenty starts in a row.
TEST(Save, AKillAtAnyMomentLeavesACompleteCheckpoint) {
  const TemporaryFolder folder;
  const fs::path save = folder.path() / "save";
  std::mt19937 random(20);
  const Overrides base = steps(100000) + kTiny + ranks(2) + save_to(save, 1);
  run(folder.path() / "first", steps(1) + kTiny + ranks(2) + save_to(save));
  int64_t reached = 1;
  int within_a_save = 0;
  for (int kill = 0; kill < 20; ++kill) {
    ProcessOptions options = kOneThread;
    options.interrupt_after_lines = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % 2);
    const auto delay = static_cast<useconds_t>(random() % 20000);
    options.instead_of_interrupt = [=](int launcher) {
      const int child = find_child(launcher, "RANK=" + std::to_string(victim));
      ::usleep(delay);
      if (child > 0) ::kill(child, SIGKILL);
    };
    const ProcessResult killed =
        run(folder.path() / "m",
            base + resume_from(save) +
                Overrides{"training.keep_last=2",
                          std::string("training.save_async=") + (kill % 2 == 0 ? "true" : "false")},
            5, options);
    const auto latest = checkpoint::read_latest(save);
    ASSERT_TRUE(latest.iteration.has_value());
    EXPECT_GE(*latest.iteration, reached) << killed.err;
    reached = *latest.iteration;
    for (const std::string& name : names_in(save)) within_a_save += name.ends_with(".tmp");
    const checkpoint::dcp::Reader reader(latest.folder);
    EXPECT_GT(reader.verify([](const std::string& name, const std::string& error) {
      ADD_FAILURE() << name << ": " << error;
    }),
              100u);
  }
  EXPECT_GT(reached, 1);
  EXPECT_GT(within_a_save, 0);
  run(folder.path() / "last",
      steps(static_cast<int>(reached) + 1) + kTiny + ranks(2) + save_to(save) + resume_from(save));
  EXPECT_EQ(checkpoint::read_latest(save).iteration, reached + 1);
  for (const std::string& name : names_in(save)) EXPECT_FALSE(name.ends_with(".tmp")) << name;
}

}  // namespace
}  // namespace shardloom::testing
