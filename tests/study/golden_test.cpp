// The logs of tests/data/logs against the figures beside them.
#include <algorithm>

#include "shardloom/study/compare.h"
#include "tests/study/logs.h"

namespace shardloom::study {
namespace {

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, EveryFigure) {
  const Json right = expected(GetParam());
  const RunLog candidate = read_log(GetParam());
  const Comparison result = compare(read_log("base.log"), candidate);
  EXPECT_EQ(candidate.steps.size(), right["steps"]);
  EXPECT_EQ(result.errors.size(), right["steps"]);
  expect_equal(result.mean_percent, right["mean_rel_err_pct"]);
  expect_equal(result.max.percent, right["max_rel_err_pct"]);
  EXPECT_EQ(result.max.iteration, right["max_step"]);
  EXPECT_EQ(result.over_limit, right["steps_over_2pct"].get<std::vector<int64_t>>());
  EXPECT_TRUE(result.ok());
}

INSTANTIATE_TEST_SUITE_P(Logs,
                         Golden,
                         ::testing::Values("cand.log",
                                           "cand_resumed.log",
                                           "cand_cut.log",
                                           "no_100_200.log",
                                           "pure_shape.log"));

TEST(GoldenLogs, MeanTimeOfTheWindow) {
  const Json right = expected("cand.log");
  const Window window;
  const auto base = timing(read_log("base.log"), window);
  const auto candidate = timing(read_log("cand.log"), window);
  const auto pure = timing(read_log("pure_shape.log"), window);
  ASSERT_TRUE(base && candidate && pure);
  expect_equal(base->mean_ms, right["base_ms_100_200"]);
  expect_equal(candidate->mean_ms, right["cand_ms_100_200"]);
  expect_equal(pure->mean_ms, expected("pure_shape.log")["cand_ms_100_200"]);
  EXPECT_EQ(base->steps, 101);
  EXPECT_FALSE(timing(read_log("no_100_200.log"), window).has_value());
}

TEST(GoldenLogs, ColoursCarriageReturnsAndOtherTextChangeNothing) {
  const Json right = expected("cand.log");
  for (const char* name : {"cand_crlf_ansi.log", "other_text.log"}) {
    const RunLog candidate = read_log(name);
    const Comparison result = compare(read_log("base.log"), candidate);
    EXPECT_EQ(result.errors.size(), right["steps"]) << name;
    expect_equal(result.mean_percent, right["mean_rel_err_pct"]);
    EXPECT_EQ(result.max.iteration, right["max_step"]) << name;
    EXPECT_TRUE(candidate.warnings.empty()) << name;
  }
}

TEST(GoldenLogs, MemoryIsThatOfTheFullestRank) {
  const RunLog log = read_log("pure_shape.log");
  EXPECT_EQ(log.max_allocated_mib, 201.5);  // rank 1
  EXPECT_EQ(log.max_reserved_mib, 310.0);   // rank 0
  EXPECT_FALSE(read_log("cand.log").max_allocated_mib.has_value());
}

TEST(GoldenLogs, RepeatedAndCutRecordsAreTold) {
  const RunLog resumed = read_log("cand_resumed.log");
  ASSERT_EQ(resumed.warnings.size(), 1U);
  EXPECT_NE(resumed.warnings[0].find("iterations 101-130"), std::string::npos);
  EXPECT_NE(resumed.warnings[0].find("line 132"), std::string::npos);
  const RunLog cut = read_log("cand_cut.log");
  ASSERT_EQ(cut.warnings.size(), 1U);
  EXPECT_NE(cut.warnings[0].find("line 220"), std::string::npos);
  EXPECT_FALSE(cut.steps.contains(220));
}

TEST(GoldenLogs, LossesThatAreNotFiniteFailTheComparison) {
  const RunLog candidate = read_log("cand_nan.log");
  ASSERT_EQ(candidate.warnings.size(), 1U);
  EXPECT_NE(candidate.warnings[0].find("50 (nan, line 50), 51 (inf, line 51)"), std::string::npos);
  EXPECT_EQ(candidate.steps.size(), 220U);
  const RunLog base = read_log("base.log");
  for (const Comparison& result : {compare(base, candidate), compare(candidate, base)}) {
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.not_finite, (std::vector<int64_t>{50, 51}));
    EXPECT_TRUE(std::isnan(result.mean_percent));
    EXPECT_TRUE(std::isnan(result.max.percent));
    EXPECT_EQ(result.errors.size(), 218U);
  }
  // The steps behind are paired by iteration: no shift.
  const Comparison right = compare(base, read_log("cand.log"));
  const Comparison result = compare(base, candidate);
  EXPECT_EQ(result.errors.back().percent, right.errors.back().percent);
}

TEST(GoldenLogs, FilesWithoutARecordAreErrors) {
  for (const char* name : {"empty.log", "binary.log", "does_not_exist.log", "."}) {
    try {
      read_log(name);
      ADD_FAILURE() << name << " was read";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace shardloom::study
