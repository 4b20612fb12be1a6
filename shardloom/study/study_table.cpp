// study_table(): the results as texts.
#include <algorithm>
#include <cmath>

#include "shardloom/study/log_record.h"
#include "shardloom/study/study_report.h"

namespace shardloom::study {
namespace {

constexpr const char* kNone = "-";
constexpr double kGib = 1024;          // in MiB
constexpr double kGibFrom = 8 * 1024;  // tables with larger peaks are in GiB

using Row = std::vector<std::string>;
using Member = std::optional<double> RunLog::*;

std::string loss_text(double loss) { return fmt::format("{:.6f}", loss); }

std::string ms_text(const std::optional<Timing>& timing) {
  return timing ? fmt::format("{:.3f}", timing->mean_ms) : std::string(kNone);
}

class Memory {
 public:
  explicit Memory(const Results& results) {
    for (const Result& run : results.runs) {
      const double peak = run.log.max_allocated_mib.value_or(0);
      in_gib_ = in_gib_ || peak >= kGibFrom;
    }
  }
  const char* unit() const { return in_gib_ ? "GiB" : "MiB"; }
  std::string text(const std::optional<double>& mib) const {
    if (!mib) return kNone;
    return fmt::format("{:.2f}", in_gib_ ? *mib / kGib : *mib);
  }

 private:
  bool in_gib_ = false;
};

std::string mean_text(const std::optional<Comparison>& c) {
  if (!c) return kNone;
  return c->ok() ? error_text(c->mean_percent)
                 : fmt::format("{} steps not finite", c->not_finite.size());
}

std::string max_text(const std::optional<Comparison>& c) {
  if (!c || !c->ok()) return kNone;
  if (c->max.percent == 0) return error_text(0);
  return fmt::format("{} (step {})", error_text(c->max.percent), c->max.iteration);
}

Table groups_table(const Results& results) {
  const Memory memory(results);
  Table table;
  table.header = {"group",
                  "last loss",
                  "mean error",
                  "max step error",
                  fmt::format("steps above {:g} %", kLimitPercent),
                  "ms/step",
                  fmt::format("peak allocated {}", memory.unit()),
                  fmt::format("peak reserved {}", memory.unit())};
  for (const Result& run : results.runs) {
    const auto& c = run.comparison;
    table.rows.push_back({run.label, loss_text(run.last_loss), mean_text(c), max_text(c),
                          c ? fmt::format("{}", c->over_limit.size()) : kNone, ms_text(run.timing),
                          memory.text(run.log.max_allocated_mib),
                          memory.text(run.log.max_reserved_mib)});
  }
  return table;
}

// The runs of one group; a repetition that is not complete is absent.
std::vector<const Result*> runs_of(const Results& results, const std::string& group) {
  std::vector<const Result*> runs;
  for (const Result& run : results.runs) {
    if (run.group == group) runs.push_back(&run);
  }
  return runs;
}

std::optional<double> peak(const std::vector<const Result*>& runs, Member member) {
  std::optional<double> greatest;
  for (const Result* run : runs) keep_larger(run->log.*member, greatest);
  return greatest;
}

// The mean of the repetitions' times and (greatest - least) / mean.
std::pair<std::string, std::string> mean_and_spread(const std::vector<const Result*>& runs) {
  std::vector<double> times;
  for (const Result* run : runs) {
    if (run->timing) times.push_back(run->timing->mean_ms);
  }
  if (times.empty()) return {kNone, kNone};
  double sum = 0;
  for (const double time : times) sum += time;
  const double mean = sum / static_cast<double>(times.size());
  const auto [least, greatest] = std::minmax_element(times.begin(), times.end());
  return {fmt::format("{:.3f}", mean),
          times.size() == 1 ? kNone : fmt::format("{:.2f} %", 100 * (*greatest - *least) / mean)};
}

// Of the repetition that is farthest from the reference.
std::string difference_text(const Results& results, const std::vector<const Result*>& runs) {
  const Comparison* worst = nullptr;
  for (const Result* run : runs) {
    if (!run->comparison) continue;
    if (!run->comparison->ok()) return mean_text(run->comparison);
    if (worst == nullptr || run->comparison->max.percent > worst->max.percent)
      worst = &*run->comparison;
  }
  if (worst == nullptr) return results.reference.empty() ? kNone : "reference";
  return max_text(*worst);
}

Table repeated_table(const StudyPlan& plan, const Results& results) {
  const Memory memory(results);
  Table table;
  table.header = {"group"};
  for (int i = 1; i <= plan.preset->repetitions; ++i)
    table.header.push_back(fmt::format("ms/step, run {}", i));
  for (const char* column : {"mean", "spread"}) table.header.emplace_back(column);
  table.header.push_back(fmt::format("peak allocated {}", memory.unit()));
  table.header.push_back(fmt::format("peak reserved {}", memory.unit()));
  for (const char* column : {"last loss", "max step error"}) table.header.emplace_back(column);
  for (const Group& group : plan.preset->groups) {
    const std::vector<const Result*> runs = runs_of(results, group.name);
    if (runs.empty()) continue;
    Row row(1 + static_cast<size_t>(plan.preset->repetitions), kNone);
    row[0] = group.label;
    for (const Result* run : runs) row[static_cast<size_t>(run->repetition)] = ms_text(run->timing);
    const auto [mean, spread] = mean_and_spread(runs);
    row.insert(row.end(), {mean, spread, memory.text(peak(runs, &RunLog::max_allocated_mib)),
                           memory.text(peak(runs, &RunLog::max_reserved_mib)),
                           loss_text(runs[0]->last_loss), difference_text(results, runs)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string error_text(double percent) {
  if (percent == 0) return "0 (equal)";
  if (!std::isfinite(percent)) return fmt::format("{}", percent);
  const int leading = static_cast<int>(std::floor(std::log10(percent)));
  return fmt::format("{:.{}f} %", percent, std::max(6, 2 - leading));
}

Table study_table(const StudyPlan& plan, const Results& results) {
  return plan.preset->repetitions == 1 ? groups_table(results) : repeated_table(plan, results);
}

}  // namespace shardloom::study
