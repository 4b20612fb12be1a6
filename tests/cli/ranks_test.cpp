// `train --nproc N` against one process: the same bits where the arithmetic is the same.
#include "shardloom/base/files.h"
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

using Overrides = std::vector<std::string>;

// One thread a rank, so that matrix products are cut the same way in every run.
const ProcessOptions kOneThread = {.environment = {"OMP_NUM_THREADS=1"}};

Overrides operator+(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Overrides steps(int count) {
  return {"training.train_iters=" + std::to_string(count), "training.micro_batch_size=1",
          "training.lr_warmup_ratio=0.0"};
}

Overrides ranks(int count) { return {"--nproc", std::to_string(count)}; }

// What one process does that runs the micro batches of `count` ranks one after the other.
Overrides serially(int count) {
  return {"training.gradient_accumulation_steps=" + std::to_string(count)};
}

std::vector<Json> run(const std::filesystem::path& folder, const Overrides& overrides) {
  const ProcessResult result = train(kTrajectory, folder, overrides, kOneThread);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return read_metrics(folder);
}

void expect_same_bits(const std::vector<Json>& a, const std::vector<Json>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "lr", "tokens", "consumed_samples"})
      EXPECT_EQ(a[i][key], b[i][key]) << key << " of step " << i + 1;
  }
}

TEST(Ranks, TwoFollowTheGoldenTrajectory) {
  const TemporaryFolder folder;
  const auto rows = run(folder.path(), Overrides{"training.micro_batch_size=1"} + ranks(2));
  const Json golden = read_json_file(std::string(SHARDLOOM_TEST_DATA) + "/golden/moe/golden.json",
                                     ExitCode::kInternal)["trajectory"]["values"];
  ASSERT_EQ(rows.size(), 200u);
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double loss = golden[i][2];
    const double error = std::abs(rows[i]["loss"].get<double>() - loss) / loss;
    sum += error;
    EXPECT_LE(error, 1e-4) << "step " << i + 1;
  }
  EXPECT_LE(sum / 200, 1e-5);  // two right implementations stay within 2e-7 (trajectory_test.cpp)
}

TEST(Ranks, TwoThreeAndFourGiveTheBitsOfOneProcess) {
  for (const int count : {2, 3, 4}) {
    const TemporaryFolder folder;
    const Overrides save = {"training.save_format=hf", "training.save_ckpt_dtype=fp32"};
    const auto sharded = run(folder.path() / "ranks",
                             steps(6) + save + ranks(count) +
                                 Overrides{"training.save=" + (folder.path() / "a").string()});
    const auto serial = run(folder.path() / "one",
                            steps(6) + save + serially(count) +
                                Overrides{"training.save=" + (folder.path() / "b").string()});
    expect_same_bits(sharded, serial);
    const auto file = [&](const char* run) {
      for (const auto& entry :
           std::filesystem::directory_iterator(folder.path() / run / "iter_0000006"))
        if (entry.path().extension() == ".safetensors") return read_file(entry.path());
      return std::string();
    };
    EXPECT_FALSE(file("a").empty());
    EXPECT_TRUE(file("a") == file("b")) << count << " ranks: weights differ";
  }
}

TEST(Ranks, ThreeAndFourFollowOneProcessOnABatchOfTwelve) {
  const TemporaryFolder folder;
  const auto whole =
      run(folder.path() / "1", steps(25) + Overrides{"training.micro_batch_size=12"});
  for (const int count : {3, 4}) {
    const auto rows =
        run(folder.path() / std::to_string(count),
            steps(25) + Overrides{"training.micro_batch_size=" + std::to_string(12 / count)} +
                ranks(count));
    ASSERT_EQ(rows.size(), whole.size());
    double sum = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double loss = whole[i]["loss"];
      const double error = std::abs(rows[i]["loss"].get<double>() - loss) / loss;
      sum += error;
      EXPECT_LE(error, 1e-4) << "step " << i + 1;
    }
    EXPECT_LE(sum / static_cast<double>(rows.size()), 1e-5);
  }
}

TEST(Ranks, SchedulingChangesNoBit) {
  const TemporaryFolder folder;
  const auto base = run(folder.path() / "base", steps(4) + ranks(2));
  const auto prefetch = [](int forward, int backward) {
    return Overrides{"parallel.fsdp_plan.num_to_forward_prefetch=" + std::to_string(forward),
                     "parallel.fsdp_plan.num_to_backward_prefetch=" + std::to_string(backward)};
  };
  const std::vector<Overrides> variants = {{"parallel.fsdp_plan.reshard_after_forward=false"},
                                           {"parallel.fsdp_plan.cpu_offload=true"},
                                           {"parallel.fsdp_plan.ignored_modules=[mlp1]"},
                                           prefetch(0, 0),
                                           prefetch(0, 1),
                                           prefetch(0, 2),
                                           prefetch(1, 2),
                                           prefetch(2, 2)};
  for (size_t i = 0; i < variants.size(); ++i) {
    expect_same_bits(run(folder.path() / std::to_string(i), steps(4) + variants[i] + ranks(2)),
                     base);
  }
}

// Before and behind a cut each rank has the gradients of its part alone.
TEST(Ranks, IgnoredModulesOfACutModelFollowAll) {
  const TemporaryFolder folder;
  const Overrides cut =
      steps(4) + Overrides{"parallel.ulysses_parallel_size=2", "training.micro_batch_size=2",
                           "data.dataset_param.pad_to=longest"};
  const auto base = run(folder.path() / "all", cut + ranks(2));
  const auto rows =
      run(folder.path() / "ignored",
          cut + Overrides{"parallel.fsdp_plan.ignored_modules=[mlp1, language_model.lm_head]"} +
              ranks(2));
  ASSERT_EQ(rows.size(), base.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    // Both are sums of two gradients; what differs is the order within the norm of all.
    for (const char* key : {"loss", "grad_norm"}) {
      const double expected = base[i][key];
      EXPECT_NEAR(rows[i][key], expected, 1e-6 * expected) << key << " of step " << i + 1;
    }
  }
}

TEST(Ranks, GlooAndReplicasFollowSharedMemory) {
  const TemporaryFolder folder;
  const auto base = run(folder.path() / "shm", steps(4) + ranks(4));
  const auto replicas =
      run(folder.path() / "hsdp",
          steps(4) + Overrides{"parallel.fully_shard_parallel_size=2"} + ranks(4));
  ProcessOptions gloo = kOneThread;
  gloo.environment.push_back("SHARDLOOM_BACKEND=gloo");
  const ProcessResult result =
      train(kTrajectory, folder.path() / "gloo", steps(4) + ranks(4), gloo);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto over_gloo = read_metrics(folder.path() / "gloo");
  ASSERT_EQ(replicas.size(), base.size());
  ASSERT_EQ(over_gloo.size(), base.size());
  for (size_t i = 0; i < base.size(); ++i) {
    // Sums in another order: fp32 rounding, grown over four steps.
    const double loss = base[i]["loss"];
    EXPECT_NEAR(replicas[i]["loss"], loss, 1e-5 * loss);
    EXPECT_NEAR(over_gloo[i]["loss"], loss, 1e-5 * loss);
  }
}

TEST(Ranks, Bf16OnTwoFollowsOneWithTheSameRoundingPoints) {
  const TemporaryFolder folder;
  // A learning rate at which the drift of roundings stays below what is asked.
  const Overrides low =
      steps(60) + Overrides{"parallel.fsdp_plan.param_dtype=bf16", "training.lr=1.0e-4"};
  const auto two = run(folder.path() / "two", low + ranks(2));
  const auto one = run(folder.path() / "one", low + serially(2));
  ASSERT_EQ(two.size(), one.size());
  for (size_t i = 0; i < two.size(); ++i) {
    const double loss = one[i]["loss"];
    EXPECT_NEAR(two[i]["loss"], loss, 1e-3 * loss) << "step " << i + 1;
  }
}

TEST(Ranks, ValidationAndInterruptAreAgreedOn) {
  const TemporaryFolder folder;
  const Overrides validation = {"training.train_iters=2", "training.val_interval=2",
                                "training.micro_batch_size=1"};
  const auto value = [&](const char* name, const Overrides& more) {
    const auto path = folder.path() / name;
    const ProcessResult result =
        train("tests/data/validation.yaml", path, validation + more, kOneThread);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const Json& row : read_metrics(path)) {
      if (row.contains("validation_loss")) return row["validation_loss"].get<double>();
    }
    return 0.0;
  };
  const double one = value("one", serially(3)), three = value("three", ranks(3));
  EXPECT_GT(one, 0.0);
  EXPECT_NEAR(three, one, 1e-6 * one);  // sums of the ranks in another order

  ProcessOptions interrupt = kOneThread;
  interrupt.interrupt_after_lines = 3;
  const ProcessResult stopped =
      train(kTrajectory, folder.path() / "stopped",
            Overrides{"training.micro_batch_size=1"} + ranks(2), interrupt);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("interrupted after"), std::string::npos) << stopped.err;
}

TEST(Ranks, LibraryTrainsWithoutTheTrainer) {
  const ProcessResult run =
      run_process({std::string(SHARDLOOM_BIN_DIR) + "/fully_shard_minimal"}, kOneThread);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::vector<double> values;
  std::istringstream words(run.out);
  for (std::string word; words >> word;) {
    if (word == "loss") words >> values.emplace_back();
  }
  ASSERT_EQ(values.size(), 5u) << run.out;
  EXPECT_LT(values.back(), 0.5 * values.front());
}

// One step of two ranks: what `check --explain` says, and the events that were logged.
struct Schedule {
  std::string explained, ran;
};

void schedule_with(const Overrides& more, Schedule& schedule) {
  const TemporaryFolder folder;
  const Overrides plan = steps(1) + more;
  ProcessOptions logged = kOneThread;
  logged.environment.push_back("SHARDLOOM_LOG_COMM=1");
  const ProcessResult result = train(kTrajectory, folder.path(), plan + ranks(2), logged);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, std::string> verb = {
      {"all_gather", "gather"}, {"reshard", "free"}, {"reduce_scatter", "reduce"}};
  const ProcessResult explained =
      shardloom(Overrides{"check", kTrajectory} + plan + Overrides{"--world", "2", "--explain"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  std::map<std::string, std::string> unit_of;  // number in the table -> unit
  std::istringstream lines(explained.out.substr(explained.out.find("units of rank 0")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string first, second;
    fields >> first >> second;
    if (!first.empty() && first.find_first_not_of("0123456789") == std::string::npos)
      unit_of[first] = second;
    for (const char* phase : {"forward: ", "backward: "}) {
      if (line.rfind(phase, 0) != 0) continue;
      std::istringstream events(line.substr(std::string(phase).size()));
      for (std::string event; std::getline(events >> std::ws, event, ',');) {
        const size_t space = event.find(' ');
        schedule.explained += event.substr(0, space + 1) + unit_of[event.substr(space + 1)] + "\n";
      }
    }
  }
  EXPECT_GT(unit_of.size(), 5u);
  std::istringstream log(result.err);
  for (std::string line; std::getline(log, line);) {
    std::istringstream fields(line);
    std::string bracket, rank, level, action, unit;
    fields >> bracket >> rank >> level >> action >> unit;
    if (rank == "0]" && level == "comm:") schedule.ran += verb[action] + " " + unit + "\n";
  }
}

TEST(Ranks, ExplainedScheduleIsWhatRuns) {
  Schedule schedule;
  schedule_with({"parallel.fsdp_plan.num_to_forward_prefetch=1"}, schedule);
  EXPECT_EQ(schedule.ran, schedule.explained);
}

// The head's gradients are made in forward: its weight is freed there and not gathered again, and
// the layer before it, which backward reads first, stays.
TEST(Ranks, ChunkLossFreesItsWeightInForward) {
  const Overrides chunks = {"features.enable_chunk_loss=true",
                            "features.chunkloss_plan.chunk_size=64"};
  Schedule schedule;
  schedule_with(chunks, schedule);
  EXPECT_EQ(schedule.ran, schedule.explained);
  const std::string head = " language_model.lm_head\n";
  EXPECT_NE(schedule.ran.find("gather" + head + "free" + head), std::string::npos) << schedule.ran;
  EXPECT_EQ(schedule.ran.find("gather" + head), schedule.ran.rfind("gather" + head));
  Schedule again;  // one that runs twice is needed twice
  schedule_with(
      chunks + Overrides{"features.recompute=true",
                         "features.recompute_plan.apply_modules=[language_model.lm_head]"},
      again);
  EXPECT_EQ(again.ran, again.explained);
  EXPECT_EQ(again.ran.find("gather" + head + "free" + head), std::string::npos) << again.ran;
}

}  // namespace
}  // namespace shardloom::testing
