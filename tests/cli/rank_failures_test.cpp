// One rank fails: every rank ends, with the first cause as the last line and its exit code.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

const std::vector<std::string> kTwoRanks = {"training.micro_batch_size=1", "--nproc", "2"};

std::vector<std::string> with(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

// Sends `signal` to rank `rank` once the run has printed some steps.
ProcessOptions signal_to(int rank, int signal) {
  ProcessOptions options;
  options.interrupt_after_lines = 3;
  options.instead_of_interrupt = [rank, signal](int launcher) {
    const int child = find_child(launcher, "RANK=" + std::to_string(rank));
    ASSERT_GT(child, 0);
    ::kill(child, signal);
  };
  return options;
}

TEST(RankFailures, KilledRankEndsTheRunAndIsNamed) {
  for (const int rank : {0, 1}) {
    const TemporaryFolder folder;
    const ProcessResult run =
        train(kTrajectory, folder.path(), kTwoRanks, signal_to(rank, SIGKILL));
    EXPECT_EQ(run.exit_code, 5) << run.err;
    EXPECT_NE(last_line(run.err).find("rank " + std::to_string(rank) + " failed first"),
              std::string::npos)
        << run.err;
    EXPECT_LT(losses(folder.path()).size(), 200u);
  }
}

// Also ranks that share their samples with the one that was asked.
TEST(RankFailures, TerminatedRankStopsAllAfterTheStep) {
  for (const char* cut : {"1", "2"}) {
    const TemporaryFolder folder;
    const auto overrides = with(kTwoRanks, {std::string("parallel.ulysses_parallel_size=") + cut,
                                            "training.save=" + (folder.path() / "save").string()});
    const ProcessResult run = train(kTrajectory, folder.path(), overrides, signal_to(1, SIGTERM));
    EXPECT_EQ(run.exit_code, 130) << run.err;
    EXPECT_NE(run.err.find("interrupted after"), std::string::npos) << run.err;
    EXPECT_LT(losses(folder.path()).size(), 200u);
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "save/latest_checkpointed_iteration.txt"));
  }
}

TEST(RankFailures, BadSampleOfOneRankEndsTheRunWithItsPlace) {
  const TemporaryFolder folder;
  // Row 4 goes to rank 1 in the second step.
  const auto data = folder.write("bad.jsonl", kGoodRecord + kGoodRecord + kGoodRecord + kBadRecord +
                                                  kGoodRecord + kGoodRecord);
  const std::vector<std::string> overrides = {
      "data.dataset_param.basic_parameters.dataset=" + data.string(), "training.train_iters=3"};
  const ProcessResult run = train(kTrajectory, folder.path() / "m", with(overrides, kTwoRanks));
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_NE(last_line(run.err).find("rank 1"), std::string::npos) << run.err;
  EXPECT_NE(last_line(run.err).find("bad.jsonl:4"), std::string::npos) << run.err;

  // With skip the rank computes nothing in its place, and the run goes on.
  const ProcessResult skipped =
      train(kTrajectory, folder.path() / "s",
            with(with(overrides, {"data.dataset_param.on_bad_sample=skip"}), kTwoRanks));
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_EQ(losses(folder.path() / "s").size(), 3u);
}

TEST(RankFailures, ConfigurationErrorsAreToldOnceAndBeforeAnyRank) {
  const ProcessResult run = shardloom({"train", kTrajectory, "training.global_batch_size=3",
                                       "training.micro_batch_size=1", "--nproc", "2"});
  EXPECT_EQ(run.exit_code, 2);
  const size_t first = run.err.find("training.global_batch_size");
  ASSERT_NE(first, std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("error:"), run.err.rfind("error:")) << run.err;
  EXPECT_EQ(run.err.find("[rank"), std::string::npos) << run.err;
}

// nohup keeps a run alive when its terminal is closed.
TEST(RankFailures, ARunUnderNohupOutlivesItsTerminal) {
  const TemporaryFolder folder;
  ProcessOptions options;
  options.interrupt_after_lines = 3;
  options.instead_of_interrupt = [](int launcher) { ::kill(launcher, SIGHUP); };
  std::vector<std::string> command = {"/usr/bin/env",
                                      "nohup",
                                      std::string(SHARDLOOM_BIN_DIR) + "/shardloom",
                                      "train",
                                      kTrajectory,
                                      "training.train_iters=30",
                                      "training.metrics_dir=" + folder.path().string()};
  const ProcessResult run = run_process(with(command, kTwoRanks), options);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(losses(folder.path()).size(), 30u);

  command.erase(command.begin(), command.begin() + 2);
  EXPECT_EQ(run_process(with(command, kTwoRanks), options).exit_code, 130);
}

// Ranks that are started one by one, as torchrun on two hosts does, may be given different values.
TEST(RankFailures, RanksWithDifferentSettingsDoNotTrain) {
  const TemporaryFolder folder;
  const auto both = [&](const std::string& first, const std::string& second) {
    const std::string script = fmt::format(
        "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={} OMP_NUM_THREADS=1\n"
        "run() {{ RANK=$1 {}/shardloom train {} training.train_iters=1 training.micro_batch_size=1 "
        "$2; }}\n"
        "run 1 '{}' & run 0 '{}'; first=$?; wait $!; test $? = $first && exit $first; exit 99",
        free_port(), SHARDLOOM_BIN_DIR, kTrajectory, second, first);
    return run_process({"/bin/sh", "-c", script});
  };
  const ProcessResult run = both("training.lr=1e-3", "training.lr=2e-3");
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_NE(run.err.find("training.lr is 0.001 on rank 0, training.lr is 0.002 on rank 1"),
            std::string::npos)
      << run.err;
  // Where a host keeps its files is its own affair.
  const ProcessResult own = both("training.metrics_dir=" + (folder.path() / "a").string(),
                                 "training.metrics_dir=" + (folder.path() / "b").string());
  EXPECT_EQ(own.exit_code, 0) << own.err;
}

TEST(RankFailures, FewerSamplesThanRanksEndsWithoutAHang) {
  const TemporaryFolder folder;
  const std::string row =
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
      "\"value\": \"b\"}]}\n";
  for (const int rows : {0, 1}) {
    std::string text;
    for (int i = 0; i < rows; ++i) text += row;
    const auto data = folder.write("few.jsonl", text);
    const ProcessResult run =
        train(kTrajectory, folder.path() / "m",
              with({"data.dataset_param.basic_parameters.dataset=" + data.string()}, kTwoRanks));
    EXPECT_EQ(run.exit_code, 3) << run.err;
    EXPECT_NE(run.err.find("few.jsonl"), std::string::npos) << run.err;
  }
}

// Rank 1 has a text without a picture: its vision tower still takes part.
TEST(RankFailures, RankWithoutAPictureTakesPart) {
  const TemporaryFolder folder;
  std::ifstream source(std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/data/train.jsonl");
  std::string picture;
  std::getline(source, picture);
  const std::string text =
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"one two\"}, {\"from\": \"gpt\", "
      "\"value\": \"three\"}]}";
  const std::vector<std::string> files = {
      picture + "\n" + text + "\n" + text + "\n" + picture + "\n", text + "\n" + text + "\n"};
  for (const std::string& lines : files) {
    const auto data = folder.write("mixed.jsonl", lines);
    for (const char* freeze : {"model.freeze=[]", "model.freeze=[vision_model]"}) {
      const std::vector<std::string> overrides = {
          "data.dataset_param.basic_parameters.dataset=" + data.string(), "training.train_iters=3",
          "training.micro_batch_size=1", "training.lr_warmup_ratio=0.0", freeze};
      const ProcessResult two =
          train(kTrajectory, folder.path() / "two", with(overrides, {"--nproc", "2"}),
                {.environment = {"OMP_NUM_THREADS=1"}});
      ASSERT_EQ(two.exit_code, 0) << two.err;
      const ProcessResult one = train(kTrajectory, folder.path() / "one",
                                      with(overrides, {"training.gradient_accumulation_steps=2"}),
                                      {.environment = {"OMP_NUM_THREADS=1"}});
      ASSERT_EQ(one.exit_code, 0) << one.err;
      EXPECT_EQ(losses(folder.path() / "two"), losses(folder.path() / "one"));
    }
  }
}

}  // namespace
}  // namespace shardloom::testing
