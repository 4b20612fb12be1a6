// The comparison of two runs by the metric of the published reports:
// error of a step = |candidate - base| / |candidate|, over all iterations that both runs have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardloom/study/run_log.h"

namespace shardloom::study {

// Iterations, both ends included.
struct Window {
  int64_t first = 100;
  int64_t last = 200;
};
// "100:200"; throws ConfigError.
Window parse_window(const std::string& text);

struct Timing {
  double mean_ms = 0;
  int64_t steps = 0;  // of the window that the run has
};
// Nothing when the run has no timed step there.
std::optional<Timing> timing(const RunLog& run, const Window& window);

struct StepError {
  int64_t iteration = 0;
  double percent = 0;
};

struct Comparison {
  // Of all common iterations that are finite in both runs, ascending.
  std::vector<StepError> errors;
  // Not a number when a loss is not finite; `max` is then at the first such iteration.
  double mean_percent = 0;
  StepError max;
  std::vector<int64_t> over_limit;  // iterations with an error above kLimitPercent
  std::vector<int64_t> only_base;   // iterations of one run alone
  std::vector<int64_t> only_candidate;
  // Iterations whose loss is nan or infinite in one of the runs: the comparison has failed.
  std::vector<int64_t> not_finite;
  bool ok() const { return not_finite.empty(); }
};

constexpr double kLimitPercent = 2.0;

// Throws DataError when no iteration is common. Equal losses have error 0, also where both are 0;
// a candidate loss of 0 beside another base is an infinite error (never in silence).
Comparison compare(const RunLog& base, const RunLog& candidate);

}  // namespace shardloom::study
