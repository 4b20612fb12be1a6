// Running, stopping and going on with a study; its tables.
#include "shardloom/study/study.h"

#include <cmath>

#include "shardloom/study/machine.h"
#include "shardloom/study/results.h"
#include "shardloom/study/state.h"
#include "shardloom/study/study_report.h"
#include "tests/study/fake_runs.h"
#include "tests/study/well_formed.h"

namespace shardloom::study {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// recompute and offload equal the baseline; none is 0.1 % above it, cp 3 % in the second step.
FakeStep step_of(const std::string& run, int64_t i) {
  const double loss = 5.0 - 0.5 * static_cast<double>(i);
  const double ms = 100.0 + static_cast<double>(i);
  if (run == "none") return {loss / 0.999, ms};
  if (run == "cp") return {i == 2 ? loss / 0.97 : loss, 2 * ms};
  return {loss, ms};
}

Json json_of(const std::filesystem::path& out) {
  return read_json_file(out / kStudyJson, ExitCode::kInternal);
}

const Json& run_named(const Json& study, const std::string& name) {
  for (const Json& run : study["runs"]) {
    if (run["name"] == name) return run;
  }
  throw std::runtime_error("no run " + name);
}

class Study : public ::testing::Test {
 protected:
  std::vector<std::string> run(const StudyOptions& options, FakeProgram& program) {
    program.started.clear();
    run_study(plan_study(options), program.start());
    return program.started;
  }

  const TemporaryFolder folder_;
  const std::filesystem::path out_ = folder_.path() / "study";
  FakeProgram program_{4, step_of};
};

TEST_F(Study, TableOfKnownRuns) {
  run(options_for(out_), program_);
  const Json study = json_of(out_);
  EXPECT_EQ(study["reference"], "baseline");
  EXPECT_EQ(study["window"], Json::parse("[3, 4]"));
  const Json& none = run_named(study, "none");
  EXPECT_NEAR(none["mean_error_percent"].get<double>(), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(none["last_loss"].get<double>(), 3.0 / 0.999);
  EXPECT_DOUBLE_EQ(none["ms_per_step"].get<double>(), 103.5);
  EXPECT_DOUBLE_EQ(none["peak_allocated_mib"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(none["peak_reserved_mib"].get<double>(), 5);
  const Json& cp = run_named(study, "cp");
  EXPECT_NEAR(cp["max_error_percent"].get<double>(), 3.0, 1e-12);
  EXPECT_EQ(cp["max_error_iteration"], 2);
  EXPECT_NEAR(cp["mean_error_percent"].get<double>(), 0.75, 1e-12);
  EXPECT_EQ(cp["iterations_above_limit"], Json::parse("[2]"));
  EXPECT_EQ(run_named(study, "recompute")["max_error_percent"], 0.0);
  EXPECT_FALSE(run_named(study, "baseline").contains("mean_error_percent"));

  const std::string markdown = read_file(out_ / kStudyMarkdown);
  EXPECT_THAT(markdown, HasSubstr("| none | 3.003003 | 0.100000 % | 0.100000 % (step "));
  EXPECT_THAT(markdown,
              HasSubstr("| +CP2 | 3.000000 | 0.750000 % | 3.000000 % (step 2) | 1 | 207.000 |"));
  EXPECT_THAT(markdown, HasSubstr("| +offload | 3.000000 | 0 (equal) | 0 (equal) | 0 | 103.500 | "
                                  "3.00 | 5.00 |"));
  EXPECT_THAT(markdown, HasSubstr("](baseline_vs_none.svg)"));
  EXPECT_THAT(markdown, HasSubstr("](baseline_vs_all.svg)"));
  for (const char* name : {"baseline_vs_none.svg", "baseline_vs_all.svg", kStudyHtml}) {
    SCOPED_TRACE(name);
    const std::string content = read_file(out_ / name);
    EXPECT_THAT(content, HasSubstr("<svg"));
    expect_well_formed(content);
    expect_self_contained(content);
  }
}

TEST_F(Study, TellsTheCommandAndTheMachine) {
  StudyOptions options = options_for(out_);
  options.command = "shardloom study x.yaml --out y";
  run(options, program_);
  const std::string markdown = read_file(out_ / kStudyMarkdown);
  EXPECT_THAT(markdown, HasSubstr("```\nshardloom study x.yaml --out y\n```\n"));
  EXPECT_THAT(markdown, HasSubstr("Program: shardloom 1.2.3"));
  const Machine machine = describe_machine(2);
  EXPECT_GT(machine.cores, 0);
  EXPECT_GT(machine.memory_bytes, 1u << 20);
  EXPECT_THAT(markdown, HasSubstr(machine.cpu));
}

TEST_F(Study, CompleteRunsAreKept) {
  EXPECT_EQ(run(options_for(out_), program_).size(), 8u);
  EXPECT_THAT(run(options_for(out_), program_), IsEmpty());
}

TEST_F(Study, GoesOnWhereItFailed) {
  program_.stops_in = "ep";
  program_.exit_code = 3;
  try {
    run(options_for(out_), program_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(), HasSubstr("ep ended with exit code 3: error: it went wrong"));
    EXPECT_THAT(error.what(), HasSubstr((out_ / "ep" / kConsoleLog).string()));
  }
  EXPECT_THAT(program_.started, ElementsAre("baseline", "none", "cp", "ep"));
  EXPECT_EQ(json_of(out_)["runs"].size(), 3u);

  program_.stops_in.clear();
  EXPECT_THAT(run(options_for(out_), program_),
              ElementsAre("ep", "recompute", "chunk_loss", "offload", "all"));

  FakeProgram once{4, step_of};
  const std::filesystem::path whole = folder_.path() / "whole";
  run(options_for(whole), once);
  EXPECT_EQ(json_of(out_)["runs"], json_of(whole)["runs"]);
}

TEST_F(Study, ARunThatWasKilledHasNoErrorInItsLog) {
  program_.stops_in = "none";
  program_.exit_code = 5;
  program_.console = "starting\ndone after 4 steps\n";
  try {
    run(options_for(out_), program_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("none ended with exit code 5: no error in its log"));
    EXPECT_THAT(error.what(), Not(HasSubstr("done after")));
  }
}

TEST_F(Study, AnUnfinishedRunStartsFromAnEmptyFolder) {
  program_.stops_in = "none";
  program_.exit_code = 130;
  EXPECT_THROW(run(options_for(out_), program_), InterruptedError);
  write_file_atomically(out_ / "none" / "left_over", "x");
  program_.stops_in.clear();
  EXPECT_EQ(run(options_for(out_), program_).front(), "none");
  EXPECT_FALSE(std::filesystem::exists(out_ / "none" / "left_over"));
  EXPECT_TRUE(std::filesystem::exists(out_ / "none" / kConfigFile));
  EXPECT_TRUE(std::filesystem::exists(out_ / "baseline" / "model.json"));
}

TEST_F(Study, RunsAgainWhatHasOtherInputs) {
  run(options_for(out_), program_);
  StudyOptions options = options_for(out_);
  options.overrides.push_back("features.chunkloss_plan.chunk_size=32");
  // The resolved configuration of every YAML group has the key; the baseline's inputs do not.
  EXPECT_EQ(run(options, program_).size(), 7u);
  options = options_for(out_);
  options.version = "1.2.4";
  options.groups = {"none"};
  EXPECT_THAT(run(options, program_), ElementsAre("none"));
  // The other groups are those of another program, so they are not in the table.
  EXPECT_EQ(json_of(out_)["runs"].size(), 1u);
  EXPECT_EQ(json_of(out_)["reference"], "");
}

TEST_F(Study, RunsAgainWhatWasDamaged) {
  run(options_for(out_), program_);
  write_file_atomically(out_ / "cp" / "done.json", "{\"steps\": 4");
  std::filesystem::remove(out_ / "all" / kMetricsFolder / "metrics.jsonl");
  EXPECT_THAT(run(options_for(out_), program_), ElementsAre("cp", "all"));
  EXPECT_EQ(json_of(out_)["runs"].size(), 8u);
}

TEST_F(Study, MovedFolderIsStillComplete) {
  run(options_for(out_), program_);
  const std::filesystem::path moved = folder_.path() / "moved";
  std::filesystem::rename(out_, moved);
  EXPECT_THAT(run(options_for(moved), program_), IsEmpty());
}

TEST_F(Study, SomeGroupsNowAndTheRestLater) {
  StudyOptions options = options_for(out_);
  options.groups = {"none", "baseline"};
  EXPECT_THAT(run(options, program_), ElementsAre("baseline", "none"));
  options.groups = {"cp"};
  EXPECT_THAT(run(options, program_), ElementsAre("cp"));
  EXPECT_EQ(json_of(out_)["runs"].size(), 3u);
}

TEST_F(Study, BaselineFromALog) {
  run(options_for(out_), program_);
  StudyOptions options = options_for(folder_.path() / "other");
  options.baseline_log = out_ / "cp" / kMetricsFolder / "metrics.jsonl";
  const std::vector<std::string> started = run(options, program_);
  EXPECT_THAT(started, Not(::testing::Contains("baseline")));
  const Json study = json_of(options.out);
  EXPECT_EQ(study["reference"], "baseline");
  EXPECT_EQ(run_named(study, "cp")["max_error_percent"], 0.0);
  EXPECT_NEAR(run_named(study, "offload")["max_error_percent"].get<double>(), 100 * (1 / 0.97 - 1),
              1e-9);
}

TEST_F(Study, ABaselineLogThatHasFewerStepsIsTold) {
  StudyOptions options = options_for(out_);
  options.groups = {"none"};
  options.baseline_log = folder_.write(
      "short.jsonl", "{\"iteration\": 1, \"loss\": 4.5}\n{\"iteration\": 2, \"loss\": 4.0}\n");
  run(options, program_);
  EXPECT_THAT(read_file(out_ / kStudyMarkdown),
              HasSubstr("Errors are over the 2 of 4 steps that baseline has too."));
  EXPECT_EQ(run_named(json_of(out_), "none")["compared_steps"], 2);
}

TEST_F(Study, ABaselineLogThatDefinesNoErrorIsRefusedBeforeAnythingRuns) {
  StudyOptions options = options_for(out_);
  options.baseline_log = folder_.write(
      "nan.jsonl", "{\"iteration\": 1, \"loss\": 4.5}\n{\"iteration\": 2, \"loss\": null}\n");
  EXPECT_THROW(run(options, program_), DataError);
  options.baseline_log = folder_.write("late.jsonl", "{\"iteration\": 5, \"loss\": 4.5}\n");
  EXPECT_THAT(config_error([&] { run(options, program_); }), HasSubstr("no step is in both"));
  EXPECT_THAT(program_.started, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Study, ARunThatLacksStepsIsNotComplete) {
  program_.stops_in = "none";  // two steps, and exit code 0
  EXPECT_THROW(run(options_for(out_), program_), InternalError);
  program_.stops_in.clear();
  EXPECT_EQ(run(options_for(out_), program_).front(), "none");
}

TEST_F(Study, RefusesFoldersOfOthers) {
  folder_.write("study/notes.txt", "mine");
  EXPECT_THAT(config_error([&] { run(options_for(out_), program_); }),
              HasSubstr("holds files that no study has made"));
  std::filesystem::remove(out_ / "notes.txt");
  StudyOptions options = options_for(out_);
  options.groups = {"none"};
  run(options, program_);
  options.config = kSource + "/examples/tiny/train.yaml";
  EXPECT_THAT(config_error([&] { run(options, program_); }), HasSubstr("holds the study of"));
  options = options_for(out_);
  options.preset = "prefetch";
  EXPECT_THAT(config_error([&] { run(options, program_); }), HasSubstr("--preset prefetch"));
  const FolderClaim other(plan_study(options_for(out_)));
  EXPECT_THAT(config_error([&] { run(options_for(out_), program_); }),
              HasSubstr("a study is running there"));
}

// A study that was killed when it had just made its folder, or found no space for its name.
TEST_F(Study, TakesAFolderWhoseNameWasNotWritten) {
  folder_.write("study/study_of.json", "");
  EXPECT_EQ(run(options_for(out_), program_).size(), 8u);
  EXPECT_EQ(read_json_file(out_ / "study_of.json", ExitCode::kInternal)["config"],
            options_for(out_).config);
  folder_.write("study/study_of.json", "");
  EXPECT_THAT(config_error([&] { run(options_for(out_), program_); }),
              HasSubstr("holds files that no study has made"));
}

TEST_F(Study, PresetsShowBothRunsAndTheirSpread) {
  StudyOptions options = options_for(out_);
  options.preset = "prefetch";
  FakeProgram program{4, [](const std::string& run, int64_t i) {
                        const double loss = run.starts_with("mlp1") && i == 3 ? 2.0 : 1.98;
                        return FakeStep{loss, run.ends_with("run1") ? 90.0 : 110.0};
                      }};
  EXPECT_EQ(run(options, program).size(), 12u);
  const std::string markdown = read_file(out_ / kStudyMarkdown);
  EXPECT_THAT(markdown, HasSubstr("| 0/2 | 90.000 | 110.000 | 100.000 | 20.00 % | 3.00 | 5.00 | "
                                  "1.980000 | 0 (equal) |"));
  EXPECT_THAT(markdown, HasSubstr("| 0/2, mlp1 after language | 90.000 | 110.000 | 100.000 | "
                                  "20.00 % | 3.00 | 5.00 | 1.980000 | 1.000000 % (step 3) |"));
}

TEST(ErrorText, ShowsEnoughDigitsAndNeverRoundsToZero) {
  EXPECT_EQ(error_text(0), "0 (equal)");
  EXPECT_EQ(error_text(1.520336), "1.520336 %");
  EXPECT_EQ(error_text(0.0000123), "0.0000123 %");
  EXPECT_EQ(error_text(4.06e-9), "0.00000000406 %");
  EXPECT_EQ(error_text(123.4), "123.400000 %");
  EXPECT_EQ(error_text(INFINITY), "inf");
}

TEST(ShellText, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_text({"train", "a=[x.{*}, y]", "it's", ""}),
            "train 'a=[x.{*}, y]' 'it'\\''s' ''");
}

}  // namespace
}  // namespace shardloom::study
