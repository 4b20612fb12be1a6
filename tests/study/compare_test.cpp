#include "shardloom/study/compare.h"

#include <fmt/format.h>

#include "shardloom/study/text.h"
#include "tests/study/logs.h"

namespace shardloom::study {
namespace {

RunLog run(std::initializer_list<std::pair<int64_t, double>> losses) {
  RunLog log{.name = "run"};
  for (const auto& [iteration, loss] : losses) log.steps[iteration].loss = loss;
  return log;
}

// Made-up metrics.jsonl: iteration, loss and elapsed_ms as columns.
struct Columns {
  std::vector<int> iteration;
  std::vector<double> loss;
  std::vector<double> ms;
  std::string jsonl;
};

Columns columns(double scale, double ms) {
  Columns c;
  for (int i = 1; i <= 240; ++i) {
    const double wave = ((i * 7919) % 1000) / 1000.0;  // a fixed disorder in [0, 1)
    c.iteration.push_back(i);
    c.loss.push_back(2.0 + 30.0 / (i + 9) + scale * wave);
    c.ms.push_back(ms + 10 * wave);
    c.jsonl += fmt::format("{{\"iteration\":{},\"loss\":{},\"elapsed_ms\":{}}}\n", i, c.loss.back(),
                           c.ms.back());
  }
  return c;
}

// As a spreadsheet does it: AVERAGE, MAX, COUNTIF over columns.
TEST(Compare, AgreesWithASpreadsheet) {
  const Columns base = columns(0, 600);
  const Columns candidate = columns(0.06, 550);
  double sum = 0, max = 0, ms = 0;
  int max_at = 0, over = 0, timed = 0;
  for (size_t row = 0; row < base.loss.size(); ++row) {
    const double d = candidate.loss[row] - base.loss[row];
    const double percent = 100.0 * (d < 0 ? -d : d) / candidate.loss[row];
    sum += percent;
    over += percent > 2 ? 1 : 0;
    if (percent > max) {
      max = percent;
      max_at = candidate.iteration[row];
    }
    if (candidate.iteration[row] >= 100 && candidate.iteration[row] <= 200) {
      ms += candidate.ms[row];
      ++timed;
    }
  }
  ASSERT_GT(over, 5);
  const RunLog run = parse_run_log(candidate.jsonl, "candidate");
  const Comparison result = compare(parse_run_log(base.jsonl, "base"), run);
  expect_equal(result.mean_percent, sum / 240);
  expect_equal(result.max.percent, max);
  EXPECT_EQ(result.max.iteration, max_at);
  EXPECT_EQ(static_cast<int>(result.over_limit.size()), over);
  const auto time = timing(run, {100, 200});
  ASSERT_TRUE(time.has_value());
  EXPECT_EQ(timed, 101);
  expect_equal(time->mean_ms, ms / 101);
}

TEST(Compare, TheCandidateIsTheDenominator) {
  const Comparison result = compare(run({{1, 1.0}}), run({{1, 4.0}}));
  EXPECT_EQ(result.mean_percent, 75.0);
  EXPECT_EQ(compare(run({{1, 4.0}}), run({{1, 1.0}})).mean_percent, 300.0);
  EXPECT_EQ(compare(run({{1, 1.0}}), run({{1, -4.0}})).mean_percent, 125.0);
}

TEST(Compare, CommonIterationsAlone) {
  const Comparison result =
      compare(run({{1, 9}, {3, 2}, {5, 1}, {6, 1}}), run({{2, 9}, {3, 2}, {5, 2}, {8, 9}}));
  ASSERT_EQ(result.errors.size(), 2U);
  EXPECT_EQ(result.mean_percent, 25.0);
  EXPECT_EQ(result.max.iteration, 5);
  EXPECT_EQ(result.only_base, (std::vector<int64_t>{1, 6}));
  EXPECT_EQ(result.only_candidate, (std::vector<int64_t>{2, 8}));
  EXPECT_THROW(compare(run({{1, 1}}), run({{2, 1}})), DataError);
}

TEST(Compare, ZeroLosses) {
  EXPECT_EQ(compare(run({{1, 0}}), run({{1, 0}})).mean_percent, 0);
  const Comparison result = compare(run({{1, 1}, {2, 1}}), run({{1, 1}, {2, 0}}));
  EXPECT_EQ(result.mean_percent, INFINITY);
  EXPECT_EQ(result.max.iteration, 2);
  EXPECT_EQ(result.over_limit, (std::vector<int64_t>{2}));
}

TEST(Compare, TheLimitItselfIsNotAbove) {
  const Comparison result = compare(run({{1, 98}, {2, 97.999}}), run({{1, 100}, {2, 100}}));
  EXPECT_EQ(result.over_limit, (std::vector<int64_t>{2}));
}

TEST(Compare, NotFiniteInEitherRunAlsoOutsideTheCommonSteps) {
  const Comparison result =
      compare(run({{1, 1}, {2, NAN}, {9, INFINITY}}), run({{1, 1}, {2, NAN}, {7, -INFINITY}}));
  EXPECT_EQ(result.not_finite, (std::vector<int64_t>{2, 7, 9}));
  EXPECT_TRUE(std::isnan(result.mean_percent));
}

TEST(Compare, Windows) {
  const Window window = parse_window("5:7");
  EXPECT_EQ(window.first, 5);
  EXPECT_EQ(window.last, 7);
  EXPECT_EQ(parse_window("3:3").last, 3);
  for (const char* bad : {"", "5", "5:", ":5", "7:5", "-1:5", "1:2:3", "a:b", "1.5:3", " 1:2",
                          "99999999999999999999:5", "100-200"}) {
    EXPECT_THROW(parse_window(bad), ConfigError) << bad;
  }
}

TEST(Compare, StepsWithoutATimeAreNoZeros) {
  RunLog log = run({{4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}});
  for (const int64_t iteration : {4, 5, 7, 8}) log.steps[iteration].elapsed_ms = iteration;
  const auto time = timing(log, {5, 7});
  ASSERT_TRUE(time.has_value());
  EXPECT_EQ(time->steps, 2);
  EXPECT_EQ(time->mean_ms, 6.0);
  EXPECT_FALSE(timing(log, {6, 6}).has_value());
  EXPECT_FALSE(timing(log, {9, 20}).has_value());
}

TEST(Text, Ranges) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({7, 150}), "7, 150");
  EXPECT_EQ(ranges_text({1, 2, 3, 5, 7, 8}), "1-3, 5, 7-8");
  EXPECT_EQ(ranges_text({1, 2, 3, 5, 7, 8}, 1), "1-3 and 3 more");
}

TEST(Text, NumbersFromEndToEnd) {
  EXPECT_EQ(parse_number("7.03E-01"), 0.703);
  EXPECT_EQ(parse_number("+2"), 2.0);
  for (const char* bad : {"", "7.03E", "7.03E-", "7,03", "1.0 ", "1.0[Rank", "0x", "many"}) {
    EXPECT_FALSE(parse_number(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace shardloom::study
