// `shardloom compare` as a user runs it.
#include "shardloom/base/files.h"
#include "tests/cli/program.h"
#include "tests/study/logs.h"
#include "tests/study/well_formed.h"

namespace shardloom::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBase = "tests/data/logs/base.log";

ProcessResult compare(const std::string& candidate, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"compare", kBase, "tests/data/logs/" + candidate});
  return shardloom(options);
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
  }
}

TEST(CompareCommand, GoldenFigures) {
  for (const char* name :
       {"cand.log", "cand_resumed.log", "cand_cut.log", "no_100_200.log", "pure_shape.log"}) {
    const ProcessResult run = compare(name, {"--json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const Json json = Json::parse(run.out);
    const Json right = study::expected(name);
    EXPECT_EQ(json["candidate"]["steps"], right["steps"]) << name;
    study::expect_equal(json["mean_error_percent"], right["mean_rel_err_pct"]);
    study::expect_equal(json["max_error_percent"], right["max_rel_err_pct"]);
    EXPECT_EQ(json["max_error_iteration"], right["max_step"]) << name;
    EXPECT_EQ(json["steps_over_limit"], right["steps_over_2pct"]) << name;
    if (right.contains("cand_ms_100_200"))
      study::expect_equal(json["candidate"]["mean_ms"], right["cand_ms_100_200"]);
  }
}

TEST(CompareCommand, TextAndWarnings) {
  const ProcessResult run = compare("cand_resumed.log");
  EXPECT_EQ(run.exit_code, 0);
  expect_words(run.out,
               {"mean error       0.294396 %", "2 (iterations 7, 150)", "659.983    605.013"});
  expect_words(run.err, {"warning: ", "iterations 101-130"});
  EXPECT_EQ(compare("cand.log").err, "");
}

TEST(CompareCommand, NotFiniteLossesFailAfterTheReport) {
  const TemporaryFolder folder;
  const fs::path html = folder.path() / "report.html";
  const ProcessResult run = compare("cand_nan.log", {"--json", "--html", html.string()});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(Json::parse(run.out)["not_finite"], Json::parse("[50, 51]"));
  expect_words(run.err, {"50 (nan, line 50), 51 (inf, line 51)", "error: "});
  study::expect_well_formed(read_file(html));
}

TEST(CompareCommand, Window) {
  const ProcessResult run = compare("no_100_200.log", {"--json", "--window", "81:90"});
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["candidate"]["timed_steps"], 10);
  for (const char* bad : {"200:100", "1", "a:b"}) {
    const ProcessResult wrong = compare("cand.log", {"--window", bad});
    EXPECT_EQ(wrong.exit_code, 2) << bad;
    expect_words(wrong.err, {"--window", bad, "100:200"});
  }
}

TEST(CompareCommand, UnreadableLogs) {
  for (const char* name : {"empty.log", "binary.log", "missing.log"}) {
    const ProcessResult run = compare(name);
    EXPECT_EQ(run.exit_code, 3) << name;
    EXPECT_EQ(run.out, "");
    expect_words(run.err, {name});
  }
}

TEST(CompareCommand, ReadsFromAPipe) {
  const std::string program = std::string(SHARDLOOM_BIN_DIR) + "/shardloom";
  const std::string log = std::string(SHARDLOOM_SOURCE_DIR) + "/" + kBase;
  const ProcessResult run = run_process(
      {"/bin/sh", "-c", "cat " + log + " | " + program + " compare " + log + " /dev/stdin --json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["compared_steps"], 220);
  EXPECT_EQ(Json::parse(run.out)["max_error_percent"], 0.0);
}

TEST(CompareCommand, ThePageReplacesNoLog) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "candidate.log";
  fs::copy_file(std::string(SHARDLOOM_SOURCE_DIR) + "/" + kBase, log);
  const ProcessResult run = shardloom({"compare", kBase, log.string(), "--html", log.string()});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(read_file(log), read_file(std::string(SHARDLOOM_SOURCE_DIR) + "/" + kBase));
  const ProcessResult nowhere = compare("cand.log", {"--html", "/no/such/folder/x.html"});
  EXPECT_EQ(nowhere.exit_code, 2);
  expect_words(nowhere.err, {"/no/such/folder/x.html"});
}

TEST(CompareCommand, HelpHasAnExample) {
  const ProcessResult run = shardloom({"compare", "--help"});
  EXPECT_EQ(run.exit_code, 0);
  expect_words(run.out, {"Examples:", "--window", "--html"});
}

}  // namespace
}  // namespace shardloom::testing
