#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "shardloom/study/chart.h"
#include "shardloom/study/report.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

// Beyond these, a straight scale would press the curve on an edge.
constexpr double kSmallAgainstLimit = 0.1;
constexpr double kOutlier = 8;

Series losses(const std::string& label, const RunLog& run) {
  Series series{.label = label};
  for (const auto& [iteration, record] : run.steps) {
    series.points.emplace_back(iteration, record.loss);
  }
  return series;
}

Series step_times(const std::string& label, const RunLog& run) {
  Series series{.label = label};
  for (const auto& [iteration, record] : run.steps) {
    if (record.elapsed_ms) series.points.emplace_back(iteration, *record.elapsed_ms);
  }
  return series;
}

bool has_outlier(const Series& series) {
  std::vector<double> values;
  for (const auto& [x, y] : series.points) values.push_back(y);
  if (values.empty()) return false;
  std::sort(values.begin(), values.end());
  return values.front() > 0 && values.back() > kOutlier * values[values.size() / 2];
}

std::string loss_chart(const ComparedRuns& runs) {
  return svg({.title = "Loss",
              .x_label = "iteration",
              .y_label = "loss",
              .series = {losses("base", runs.base), losses("candidate", runs.candidate)}});
}

// With a gap where a loss is not finite.
std::string error_chart(const ComparedRuns& runs) {
  Series series{.label = "|candidate - base| / |candidate|"};
  double largest = 0;
  for (const StepError& error : runs.comparison.errors) {
    series.points.emplace_back(error.iteration, error.percent);
    largest = std::max(largest, error.percent);
  }
  for (const int64_t iteration : runs.comparison.not_finite) {
    series.points.emplace_back(iteration, std::numeric_limits<double>::quiet_NaN());
  }
  std::sort(series.points.begin(), series.points.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return svg({.title = "Relative error of each step",
              .x_label = "iteration",
              .y_label = "error in %",
              .log_y = largest > 0 && largest < kSmallAgainstLimit * kLimitPercent,
              .series = {series},
              .horizontal = Chart::Line{kLimitPercent, fmt::format("{:g} %", kLimitPercent)}});
}

std::string time_chart(const ComparedRuns& runs) {
  const Series base = step_times("base", runs.base);
  const Series candidate = step_times("candidate", runs.candidate);
  if (base.points.empty() && candidate.points.empty()) return paragraph("No step has a time.");
  return svg({.title = "Time of each step",
              .x_label = "iteration",
              .y_label = "ms",
              .log_y = has_outlier(base) || has_outlier(candidate),
              .series = {base, candidate}});
}

Series memory(const std::string& label, const RunLog& run) {
  Series series{.label = label};
  for (const auto& [iteration, record] : run.steps) {
    if (record.allocated_mib) series.points.emplace_back(iteration, *record.allocated_mib);
  }
  return series;
}

// A console tells the peak once, which is in the table; metrics.jsonl tells it in each step.
std::string memory_chart(const ComparedRuns& runs) {
  const Series base = memory("base", runs.base);
  const Series candidate = memory("candidate", runs.candidate);
  if (base.points.empty() && candidate.points.empty())
    return paragraph("Memory: its peaks are in the table; no log has it for each step.");
  return svg({.title = "Peak of allocated memory up to each step",
              .x_label = "iteration",
              .y_label = "MiB",
              .series = {base, candidate}});
}

std::string verdict(const Comparison& result) {
  if (!result.ok()) {
    return fmt::format("The comparison has failed: losses are not finite at iteration {}.",
                       ranges_text(result.not_finite));
  }
  return fmt::format(
      "Mean error {:.6g} %, largest {:.6g} % at iteration {}; {} of {} steps above "
      "{:g} %.",
      result.mean_percent, result.max.percent, result.max.iteration, result.over_limit.size(),
      result.errors.size(), kLimitPercent);
}

std::string warnings(const ComparedRuns& runs) {
  std::vector<std::string> texts = runs.base.warnings;
  texts.insert(texts.end(), runs.candidate.warnings.begin(), runs.candidate.warnings.end());
  return texts.empty() ? "" : section("Warnings", list(texts));
}

}  // namespace

std::string report_html(const ComparedRuns& runs) {
  std::string body = facts({{"base", runs.base.name}, {"candidate", runs.candidate.name}});
  body += paragraph(verdict(runs.comparison));
  body += section("Runs", table(run_table(runs)));
  body += section("Error", facts(error_facts(runs)) + error_chart(runs));
  body += section("Curves", loss_chart(runs) + time_chart(runs) + memory_chart(runs));
  return page("Comparison of two runs", body + warnings(runs));
}

}  // namespace shardloom::study
