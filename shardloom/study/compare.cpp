#include "shardloom/study/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "shardloom/base/error.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

std::optional<int64_t> parse_iteration(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < 0) return std::nullopt;
  return value;
}

double error_percent(double base, double candidate) {
  if (base == candidate) return 0;  // also 0 and 0
  return std::abs(candidate - base) / std::abs(candidate) * 100;
}

std::vector<int64_t> only_in(const RunLog& run, const RunLog& other) {
  std::vector<int64_t> iterations;
  for (const auto& [iteration, record] : run.steps) {
    if (!other.steps.contains(iteration)) iterations.push_back(iteration);
  }
  return iterations;
}

std::vector<int64_t> not_finite(const RunLog& base, const RunLog& candidate) {
  std::vector<int64_t> iterations;
  for (const RunLog* run : {&base, &candidate}) {
    for (const auto& [iteration, record] : run->steps) {
      if (!std::isfinite(record.loss)) iterations.push_back(iteration);
    }
  }
  std::sort(iterations.begin(), iterations.end());
  iterations.erase(std::unique(iterations.begin(), iterations.end()), iterations.end());
  return iterations;
}

void summarise(Comparison& result) {
  if (!result.ok()) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    result.mean_percent = kNan;
    result.max = {result.not_finite.front(), kNan};
  } else {
    double sum = 0;
    result.max = result.errors.front();
    for (const StepError& error : result.errors) {
      sum += error.percent;
      if (error.percent > result.max.percent) result.max = error;
    }
    result.mean_percent = sum / static_cast<double>(result.errors.size());
  }
  for (const StepError& error : result.errors) {
    if (error.percent > kLimitPercent) result.over_limit.push_back(error.iteration);
  }
}

}  // namespace

Window parse_window(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto first = parse_iteration(std::string_view(text).substr(0, colon));
    const auto last = parse_iteration(std::string_view(text).substr(colon + 1));
    if (first && last && *first <= *last) return {*first, *last};
  }
  throw ConfigError(
      "--window {}: wanted are the first and the last iteration, both included, such as 100:200",
      text);
}

std::optional<Timing> timing(const RunLog& run, const Window& window) {
  Timing result;
  double sum = 0;
  for (auto step = run.steps.lower_bound(window.first);
       step != run.steps.end() && step->first <= window.last; ++step) {
    if (!step->second.elapsed_ms) continue;
    sum += *step->second.elapsed_ms;
    ++result.steps;
  }
  if (result.steps == 0) return std::nullopt;
  result.mean_ms = sum / static_cast<double>(result.steps);
  return result;
}

Comparison compare(const RunLog& base, const RunLog& candidate) {
  Comparison result;
  result.only_base = only_in(base, candidate);
  result.only_candidate = only_in(candidate, base);
  result.not_finite = not_finite(base, candidate);
  if (result.only_base.size() == base.steps.size()) {
    throw DataError("no iteration is in both runs: {} has {}, {} has {}", base.name,
                    ranges_text(result.only_base), candidate.name,
                    ranges_text(result.only_candidate));
  }
  for (const auto& [iteration, record] : base.steps) {
    const auto other = candidate.steps.find(iteration);
    if (other == candidate.steps.end()) continue;
    const double candidate_loss = other->second.loss;
    if (!std::isfinite(record.loss) || !std::isfinite(candidate_loss)) continue;
    result.errors.push_back({iteration, error_percent(record.loss, candidate_loss)});
  }
  summarise(result);
  return result;
}

}  // namespace shardloom::study
