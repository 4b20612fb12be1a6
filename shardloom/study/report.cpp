#include "shardloom/study/report.h"

#include <fmt/format.h>

#include <utility>

#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

// "659.983", or "659.983 (51 of 101)" when the run has not all steps of the window.
std::string timing_text(const std::optional<Timing>& timing, const Window& window) {
  if (!timing) return or_no_data(std::nullopt, 0);
  std::string text = fmt::format("{:.3f}", timing->mean_ms);
  const uint64_t wanted = static_cast<uint64_t>(window.last - window.first) + 1;
  if (static_cast<uint64_t>(timing->steps) != wanted)
    text += fmt::format(" ({} of {})", timing->steps, wanted);
  return text;
}

std::string change_text(const std::optional<double>& base, const std::optional<double>& candidate) {
  if (!base || !candidate || *base == 0) return {};
  return fmt::format("{:+.2f} %", (*candidate - *base) / *base * 100);
}

std::vector<std::string> number_row(const std::string& name,
                                    const std::optional<double>& base,
                                    const std::optional<double>& candidate) {
  return {name, or_no_data(base, 1), or_no_data(candidate, 1), change_text(base, candidate)};
}

std::vector<std::string> timing_row(const ComparedRuns& runs) {
  const auto base = timing(runs.base, runs.window);
  const auto candidate = timing(runs.candidate, runs.window);
  std::vector<std::string> row = {
      fmt::format("mean ms of steps {} to {}", runs.window.first, runs.window.last),
      timing_text(base, runs.window), timing_text(candidate, runs.window)};
  if (base && candidate) row.push_back(change_text(base->mean_ms, candidate->mean_ms));
  return row;
}

// "2 (iterations 7, 150)"
std::string counted(const std::vector<int64_t>& iterations) {
  if (iterations.empty()) return "none";
  return fmt::format("{} (iteration{} {})", iterations.size(), iterations.size() == 1 ? "" : "s",
                     ranges_text(iterations));
}

std::string last_loss(const RunLog& run) {
  return fmt::format("{:.6f}", run.steps.rbegin()->second.loss);
}

}  // namespace

ComparedRuns compare_runs(RunLog base, RunLog candidate, const Window& window) {
  Comparison comparison = compare(base, candidate);
  return {std::move(base), std::move(candidate), window, std::move(comparison)};
}

std::string or_no_data(const std::optional<double>& value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : "no data";
}

Table run_table(const ComparedRuns& runs) {
  const RunLog& base = runs.base;
  const RunLog& candidate = runs.candidate;
  Table table{.header = {"", "base", "candidate", "change"}};
  table.rows.push_back(
      {"steps", fmt::format("{}", base.steps.size()), fmt::format("{}", candidate.steps.size())});
  table.rows.push_back({"last iteration", fmt::format("{}", base.steps.rbegin()->first),
                        fmt::format("{}", candidate.steps.rbegin()->first)});
  table.rows.push_back({"last loss", last_loss(base), last_loss(candidate)});
  table.rows.push_back(timing_row(runs));
  table.rows.push_back(
      number_row("peak allocated MiB", base.max_allocated_mib, candidate.max_allocated_mib));
  table.rows.push_back(
      number_row("peak reserved MiB", base.max_reserved_mib, candidate.max_reserved_mib));
  return table;
}

Facts error_facts(const ComparedRuns& runs) {
  const Comparison& result = runs.comparison;
  Facts facts = {{"compared steps", fmt::format("{}", result.errors.size())}};
  if (result.ok()) {
    facts.emplace_back("mean error", fmt::format("{:.6g} %", result.mean_percent));
    facts.emplace_back("max error", fmt::format("{:.6g} % at iteration {}", result.max.percent,
                                                result.max.iteration));
  } else {
    facts.emplace_back("losses not finite", counted(result.not_finite));
    facts.emplace_back("mean error", "not defined");
    facts.emplace_back("max error", "not defined");
  }
  facts.emplace_back(fmt::format("steps above {:g} %", kLimitPercent), counted(result.over_limit));
  if (!result.only_base.empty()) facts.emplace_back("in base alone", counted(result.only_base));
  if (!result.only_candidate.empty())
    facts.emplace_back("in candidate alone", counted(result.only_candidate));
  return facts;
}

std::string report_text(const ComparedRuns& runs) {
  return facts_text({{"base", runs.base.name}, {"candidate", runs.candidate.name}}) + "\n" +
         table_text(run_table(runs)) + "\n" + facts_text(error_facts(runs));
}

}  // namespace shardloom::study
