#include "shardloom/study/chart.h"

#include <cmath>
#include <limits>
#include <set>

#include "shardloom/study/axis.h"
#include "tests/study/well_formed.h"

namespace shardloom::study {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> texts;
  for (const Axis::Tick& tick : axis.ticks) texts.push_back(tick.label);
  return texts;
}

using Labels = std::vector<std::string>;

TEST(Axis, RoundTicks) {
  EXPECT_EQ(labels(rounded_axis(0.7, 3.5, 6)),
            (Labels{"0.5", "1.0", "1.5", "2.0", "2.5", "3.0", "3.5"}));
  EXPECT_EQ(labels(linear_axis(1, 220, 4)), (Labels{"100", "200"}));
  EXPECT_EQ(labels(linear_axis(1, 3, 10, true)), (Labels{"1", "2", "3"}));
  EXPECT_EQ(labels(rounded_axis(0, 2e-7, 2)), (Labels{"0", "1e-07", "2e-07"}));
  EXPECT_EQ(labels(log_axis(0.002, 0.9, 6)), (Labels{"0.01", "0.1", "1"}));
  EXPECT_EQ(labels(log_axis(400, 12600, 6)),
            (Labels{"200", "500", "1000", "2000", "5000", "10000", "20000"}));
  EXPECT_EQ(labels(log_axis(2e-9, 3, 4)), (Labels{"1e-08", "1e-05", "0.01"}));
}

// Equal values, tiny spans on large values: labels stay apart, nothing divides by zero.
TEST(Axis, NarrowRanges) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{2, 2},
                                                                        {0, 0},
                                                                        {-3, -3},
                                                                        {2, 2.000001},
                                                                        {1e9, 1e9 + 1},
                                                                        {1e-300, 1e-300},
                                                                        {0, 5e-324}}) {
    const Axis axis = rounded_axis(low, high, 5);
    ASSERT_GE(axis.ticks.size(), 2U);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
    const Labels texts = labels(axis);
    EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size()) << low;
    EXPECT_TRUE(std::isfinite(axis.position(low)));
  }
  EXPECT_GE(labels(linear_axis(9e18, 9e18, 10, true)).size(), 2U);  // iterations
  for (const double value : {1.0, 0.3, 5e-8, 7e12}) {
    const Axis axis = log_axis(value, value, 5);
    EXPECT_LT(axis.low, axis.high);
    EXPECT_GE(axis.ticks.size(), 2U) << value;
  }
}

// An error of 0 in all steps has no room for negative errors.
TEST(Axis, ZerosStandOnTheLowerEdge) {
  const Axis axis = rounded_axis(0, 0, 5);
  EXPECT_EQ(axis.low, 0);
  EXPECT_EQ(axis.position(0), 0);
  EXPECT_EQ(labels(axis).front(), "0");
}

TEST(Axis, Positions) {
  const Axis linear = rounded_axis(0, 10, 5);
  EXPECT_EQ(linear.position(5), 0.5);
  EXPECT_EQ(linear.position(-1), 0);
  EXPECT_EQ(linear.position(11), 1);
  const Axis log = log_axis(1, 100, 5);
  EXPECT_NEAR(log.position(10), 0.5, 1e-12);  // two logarithms
  EXPECT_EQ(log.position(0), 0);
  EXPECT_EQ(log.position(-3), 0);
}

// The points of the first curve in pixels, one list for each stretch.
std::vector<std::vector<std::pair<double, double>>> stretches(const std::string& text) {
  const std::string kBegin = "<path d=\"";
  for (size_t at = 0; (at = text.find(kBegin, at)) != std::string::npos; ++at) {
    const size_t begin = at + kBegin.size();
    const size_t end = text.find('"', begin);
    if (text.substr(end, 60).find("stroke-linejoin") == std::string::npos &&
        text.substr(end, text.find('>', end) - end).find("stroke-linejoin") == std::string::npos)
      continue;
    std::vector<std::vector<std::pair<double, double>>> found;
    const char* p = text.c_str() + begin;
    while (*p == 'M' || *p == 'L') {
      if (*p == 'M') found.emplace_back();
      char* next = nullptr;
      const double x = std::strtod(p + 1, &next);
      const double y = std::strtod(next, &next);
      found.back().emplace_back(x, y);
      p = std::string_view(next).starts_with("h0") ? next + 2 : next;
    }
    return found;
  }
  return {};
}

Chart chart_of(Series series) {
  return {.title = "t", .x_label = "x", .y_label = "y", .series = {std::move(series)}};
}

TEST(Chart, ALongSeriesKeepsItsExtremes) {
  Series series{.label = "long"};
  for (int i = 0; i < 200000; ++i) series.points.emplace_back(i, std::sin(i * 0.37));
  series.points[123456].second = 5;
  series.points[77777].second = -4;
  const std::string text = svg(chart_of(series));
  EXPECT_LT(text.size(), 100000U);  // 200000 points would be 2 MB
  double highest = 1e9, lowest = -1e9, right = 0;
  for (const auto& stretch : stretches(text)) {
    for (const auto& [x, y] : stretch) {
      highest = std::min(highest, y);
      lowest = std::max(lowest, y);
      right = std::max(right, x);
    }
  }
  Series ends{.label = "ends", .points = {{0, 0}, {77777, -4}, {123456, 5}, {199999, 0}}};
  const auto right_points = stretches(svg(chart_of(ends))).at(0);
  EXPECT_EQ(lowest, right_points[1].second);
  EXPECT_EQ(highest, right_points[2].second);
  EXPECT_EQ(right, right_points[3].first);
}

TEST(Chart, ValuesThatAreNotFiniteAreGaps) {
  const Series series{.label = "gaps",
                      .points = {{1, 1}, {2, 2}, {3, kNan}, {4, 1}, {5, INFINITY}, {6, 1}, {7, 2}}};
  const auto found = stretches(svg(chart_of(series)));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].size(), 2U);
  EXPECT_EQ(found[1].size(), 1U);
  EXPECT_EQ(found[2].size(), 2U);
  EXPECT_NE(svg(chart_of(series)).find("h0"), std::string::npos);  // the lone point is a dot
}

TEST(Chart, WellFormedWhateverTheValues) {
  Chart chart{.title = "a < b & \"c\"", .x_label = "<x>", .y_label = "&y", .log_y = true};
  const auto expect_sound = [&] {
    const std::string text = svg(chart);
    expect_well_formed(text);
    expect_self_contained(text);
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("inf"), std::string::npos);
  };
  expect_sound();  // no series
  chart.series.push_back({.label = "empty", .points = {}});
  expect_sound();
  chart.series.push_back({.label = "zeros", .points = {{1, 0}, {2, 0}}});
  expect_sound();
  chart.log_y = false;
  expect_sound();
  chart.series.push_back(
      {.label = "wild",
       .points = {{1, kNan}, {2, -INFINITY}, {3, 1e-300}, {4, 1e308}, {5, -1e308}}});
  chart.horizontal = Chart::Line{2, "2 %"};
  expect_sound();
  chart.log_y = true;
  expect_sound();
}

// Twelve long names need several rows of the legend; the plot moves down with them.
TEST(Chart, TheLegendWraps) {
  Chart chart = chart_of({.label = "one", .points = {{1, 1}, {2, 2}}});
  const auto height = [](const std::string& text) {
    const size_t at = text.find("viewBox=\"0 0 ") + 13;
    return std::stoi(text.substr(text.find(' ', at)));
  };
  const int small = height(svg(chart));
  for (int i = 0; i < 12; ++i)
    chart.series.push_back({.label = "a rather long name of a group", .points = {{1, 1}}});
  EXPECT_GE(height(svg(chart)), small + 40);
}

}  // namespace
}  // namespace shardloom::study
