// What the complete runs of a study have measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardloom/study/compare.h"
#include "shardloom/study/plan.h"
#include "shardloom/study/run_log.h"

namespace shardloom::study {

struct Result {
  std::string name;   // of the run, "baseline" for the log of --baseline-log
  std::string label;  // of its group
  std::string group;
  int repetition = 1;
  RunLog log;
  double last_loss = 0;
  std::optional<Timing> timing;          // in the study's window
  std::optional<Comparison> comparison;  // with the reference; absent without one, and of itself
};

struct Results {
  std::string reference;  // name of the run that the errors are relative to; "" when it is absent
  std::vector<Result> runs;  // in the order of the plan

  const Result* find(const std::string& name) const;
};

// metrics.jsonl of a run that has ended. Throws DataError.
RunLog read_metrics(const Run& run);

// Of all runs that are complete with the inputs of the plan. The reference is the log of
// --baseline-log, else the first run of the preset.
Results collect(const StudyPlan& plan);

}  // namespace shardloom::study
