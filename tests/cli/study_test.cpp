// `shardloom study` as a user runs it: eight groups on two ranks, stopped and started again.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "shardloom/base/files.h"
#include "tests/cli/program.h"

namespace shardloom::testing {
namespace {

constexpr int kSteps = 20;
const ProcessOptions kOneThread = {.environment = {"OMP_NUM_THREADS=1"}};

std::vector<std::string> study_command(const std::filesystem::path& out,
                                       const std::vector<std::string>& more = {},
                                       int steps = kSteps) {
  std::vector<std::string> command = {
      "study", kTrajectory, "training.micro_batch_size=1", "--steps", std::to_string(steps),
      "--out", out.string()};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

Json study_json(const std::filesystem::path& out) {
  return read_json_file(out / "study.json", ExitCode::kInternal);
}

// What must not depend on the machine and the moment.
Json without_times(Json runs) {
  for (Json& run : runs) {
    for (const char* key : {"ms_per_step", "peak_allocated_mib", "peak_reserved_mib"})
      run.erase(key);
  }
  return runs;
}

// A study in the background, from the root of the repository and with its messages in a file.
class Background {
 public:
  Background(const std::vector<std::string>& arguments, const std::filesystem::path& messages) {
    const std::string program = std::string(SHARDLOOM_BIN_DIR) + "/shardloom";
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    std::string threads = "OMP_NUM_THREADS=1";
    std::vector<char*> environment;
    environment.push_back(threads.data());
    for (char** entry = ::environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, SHARDLOOM_SOURCE_DIR);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, messages.c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int error = ::posix_spawn(&process_, program.c_str(), &actions, nullptr, argv.data(),
                                    environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("posix_spawn");
  }

  // Once the run has trained a step: false when the study has ended before.
  bool wait_for_step_of(const std::filesystem::path& run) {
    const std::filesystem::path metrics = run / "metrics" / "metrics.jsonl";
    std::error_code missing;
    while (std::filesystem::file_size(metrics, missing) == 0 || missing) {
      if (::waitpid(process_, &status_, WNOHANG) != 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  // Its exit code, or 128 + the signal that killed it.
  int end_by(int signal) {
    ::kill(process_, signal);
    ::waitpid(process_, &status_, 0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  pid_t process_ = 0;
  int status_ = 0;
};

class StudyCommand : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::filesystem::path out_ = folder_.path() / "study";
};

TEST_F(StudyCommand, KilledInTheFourthGroupEndsWithTheSameTable) {
  Background study(study_command(out_), folder_.path() / "messages");
  ASSERT_TRUE(study.wait_for_step_of(out_ / "ep")) << read_file(folder_.path() / "messages");
  EXPECT_EQ(study.end_by(SIGKILL), 128 + SIGKILL);
  EXPECT_EQ(study_json(out_)["runs"].size(), 3u);

  const ProcessResult again = shardloom(study_command(out_), kOneThread);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find("complete: baseline, none, cp"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("ep was not finished: it starts anew"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("[4/8] ep: EP2, 20 steps, about "), std::string::npos) << again.err;

  const std::filesystem::path whole = folder_.path() / "whole";
  const ProcessResult once = shardloom(study_command(whole), kOneThread);
  ASSERT_EQ(once.exit_code, 0) << once.err;
  EXPECT_EQ(without_times(study_json(out_)["runs"]), without_times(study_json(whole)["runs"]));

  const Json runs = study_json(whole)["runs"];
  ASSERT_EQ(runs.size(), 8u);
  for (const Json& run : runs) {
    const std::string name = run["name"];
    SCOPED_TRACE(name);
    EXPECT_EQ(run["steps"], kSteps);
    EXPECT_EQ(run["timed_steps"], kSteps / 2);
    EXPECT_GT(run["peak_allocated_mib"].get<double>(), 1.0);
    if (name == "baseline") continue;
    // The paths, recomputation and offload change no arithmetic; the others the order of sums:
    // limits of two right fp32 implementations (features_test.cpp).
    const bool same_sums = name == "none" || name == "recompute" || name == "offload";
    EXPECT_LE(run["max_error_percent"].get<double>(), same_sums ? 0.0 : 1e-2);
    EXPECT_LE(run["mean_error_percent"].get<double>(), same_sums ? 0.0 : 1e-3);
  }
  for (const char* file : {"study.md", "study.html", "baseline_vs_none.svg", "baseline_vs_all.svg"})
    EXPECT_TRUE(std::filesystem::exists(whole / file)) << file;
}

TEST_F(StudyCommand, InterruptStopsTheRunAndTheStudy) {
  Background study(study_command(out_, {"--groups", "none,offload"}, 100'000),
                   folder_.path() / "messages");
  ASSERT_TRUE(study.wait_for_step_of(out_ / "none")) << read_file(folder_.path() / "messages");
  EXPECT_EQ(study.end_by(SIGINT), 130);
  const std::string messages = read_file(folder_.path() / "messages");
  EXPECT_NE(messages.find("interrupted in none"), std::string::npos) << messages;
  EXPECT_FALSE(std::filesystem::exists(out_ / "offload"));
}

TEST_F(StudyCommand, TellsAllFaultsBeforeAnythingStarts) {
  const ProcessResult result =
      shardloom(study_command(out_, {"--groups", "none,all",
                                     "parallel.ep_plan.apply_modules=[language_model.layers.{*}]",
                                     "features.recompute_plan.apply_modules=[vision.layers.{*}]"}),
                kOneThread);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("language_model.layers.{*}"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("vision.layers.{*}"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(StudyCommand, GroupsAreAListWithOrWithoutSpaces) {
  const ProcessResult none = shardloom(study_command(out_, {"--groups", " "}), kOneThread);
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("--groups names no group"), std::string::npos) << none.err;
  const ProcessResult wrong =
      shardloom(study_command(out_, {"--groups", "none, ofload,"}), kOneThread);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("no group ofload (did you mean offload?)"), std::string::npos)
      << wrong.err;
  const ProcessResult steps = shardloom(study_command(out_, {}, 0), kOneThread);
  EXPECT_EQ(steps.exit_code, 2);
  EXPECT_NE(steps.err.find("--steps is 0; at least 1 is needed"), std::string::npos) << steps.err;
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(StudyCommand, AFailingGroupNamesItsLog) {
  const std::string dataset = folder_.write("bad.jsonl", "{\"id\": 1}\n{\"id\": 2}\n").string();
  const ProcessResult result = shardloom(
      study_command(out_,
                    {"--groups", "none", "data.dataset_param.basic_parameters.dataset=" + dataset}),
      kOneThread);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find((out_ / "none" / "console.log").string()), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace shardloom::testing
