#include "shardloom/study/report.h"

#include <fmt/format.h>

#include <limits>

#include "tests/study/logs.h"
#include "tests/study/well_formed.h"

namespace shardloom::study {
namespace {

ComparedRuns compared(const std::string& base, const std::string& candidate, Window window = {}) {
  return compare_runs(read_log(base), read_log(candidate), window);
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
  }
}

TEST(Report, Text) {
  expect_words(report_text(compared("base.log", "pure_shape.log")),
               {"base.log\n", "pure_shape.log\n", "0.704028   0.701260\n",
                "mean ms of steps 100 to 200   659.983    605.009  -8.33 %\n",
                "peak allocated MiB            no data      201.5\n",
                "mean error       0.276384 %\n", "max error        2.69229 % at iteration 150\n",
                "steps above 2 %  2 (iterations 7, 150)\n"});
}

TEST(Report, MissingValuesAreNoData) {
  const ComparedRuns runs = compared("base.log", "no_100_200.log");
  expect_words(report_text(runs),
               {"659.983    no data\n", "in base alone    130 (iterations 91-220)\n"});
  const Json json = Json::parse(report_json(runs));
  EXPECT_TRUE(json["candidate"]["mean_ms"].is_null());
  EXPECT_EQ(json["candidate"]["timed_steps"], 0);
  EXPECT_TRUE(json["base"]["max_allocated_mib"].is_null());
  EXPECT_EQ(json["only_base"], Json::parse("[[91, 220]]"));
  EXPECT_TRUE(json["only_candidate"].empty());
}

TEST(Report, AWindowThatTheRunHasInPart) {
  expect_words(report_text(compared("base.log", "no_100_200.log", {81, 100})), {"(10 of 20)"});
}

TEST(Report, TheLargestWindowDoesNotOverflow) {
  const int64_t last = std::numeric_limits<int64_t>::max();
  expect_words(report_text(compared("base.log", "cand.log", {0, last})),
               {"(220 of 9223372036854775808)"});
}

// metrics.jsonl has the memory of each step; a console has one line, which is in the table.
TEST(Report, MemoryIsDrawnWhereALogHasIt) {
  const RunLog console = read_log("pure_shape.log");
  const std::string without = report_html(compare_runs(console, console, {}));
  EXPECT_EQ(without.find("Peak of allocated memory"), std::string::npos);
  RunLog metrics = console;
  for (auto& [iteration, step] : metrics.steps) step.allocated_mib = iteration < 3 ? 100 : 201.5;
  const std::string page = report_html(compare_runs(console, metrics, {}));
  expect_words(page, {"Peak of allocated memory up to each step", ">MiB<"});
  MarkupChecker checker(page);
  EXPECT_EQ(checker.check(), "");
  EXPECT_EQ(checker.num_elements("svg"), 4);
}

TEST(Report, JsonInFullPrecision) {
  const Json right = expected("cand.log");
  const Json json = Json::parse(report_json(compared("base.log", "cand.log")));
  EXPECT_EQ(json["mean_error_percent"], right["mean_rel_err_pct"]);
  EXPECT_EQ(json["max_error_percent"], right["max_rel_err_pct"]);
  EXPECT_EQ(json["max_error_iteration"], right["max_step"]);
  EXPECT_EQ(json["steps_over_limit"], right["steps_over_2pct"]);
  EXPECT_EQ(json["base"]["last_loss"], 0.7040279);
  EXPECT_EQ(json["window"], Json::parse("[100, 200]"));
  EXPECT_EQ(json["ok"], true);
}

TEST(Report, NotFiniteLossesGiveNoMean) {
  const ComparedRuns runs = compared("base.log", "cand_nan.log");
  const Json json = Json::parse(report_json(runs));
  EXPECT_EQ(json["ok"], false);
  EXPECT_TRUE(json["mean_error_percent"].is_null());
  EXPECT_TRUE(json["max_error_percent"].is_null());
  EXPECT_EQ(json["not_finite"], Json::parse("[50, 51]"));
  EXPECT_EQ(json["compared_steps"], 218);
  expect_words(report_text(runs),
               {"losses not finite  2 (iterations 50-51)\n", "mean error         not defined\n"});
}

class Page : public ::testing::TestWithParam<const char*> {};

TEST_P(Page, IsOneSelfContainedFile) {
  const std::string text = report_html(compared("base.log", GetParam()));
  MarkupChecker checker(text);
  EXPECT_EQ(checker.check(), "");
  EXPECT_EQ(checker.num_elements("svg"), 3);
  EXPECT_EQ(checker.num_elements("table"), 1);
  expect_self_contained(text);
}

INSTANTIATE_TEST_SUITE_P(
    Logs,
    Page,
    ::testing::Values("cand.log", "cand_nan.log", "cand_cut.log", "no_100_200.log", "base.log"));

TEST(Report, NamesOfFilesAreText) {
  ComparedRuns runs = compared("base.log", "cand.log");
  runs.base.name = "<b>&\xff.log";
  expect_well_formed(report_html(runs));
  EXPECT_NO_THROW(Json::parse(report_json(runs)));
}

}  // namespace
}  // namespace shardloom::study
