#include "shardloom/study/results.h"

#include <utility>

#include "shardloom/study/state.h"

namespace shardloom::study {
namespace {

Result result_of(RunLog log, const StudyPlan& plan) {
  Result result;
  result.last_loss = log.steps.rbegin()->second.loss;
  result.timing = timing(log, plan.window);
  result.log = std::move(log);
  return result;
}

Result given_baseline(const StudyPlan& plan) {
  const Group& group = plan.preset->groups.front();
  Result result = result_of(read_run_log(*plan.options.baseline_log), plan);
  result.name = result.group = group.name;
  result.label = "baseline (given log)";
  return result;
}

}  // namespace

const Result* Results::find(const std::string& name) const {
  for (const Result& result : runs) {
    if (result.name == name) return &result;
  }
  return nullptr;
}

RunLog read_metrics(const Run& run) { return read_run_log(metrics_file(run)); }

Results collect(const StudyPlan& plan) {
  Results results;
  if (plan.options.baseline_log) results.runs.push_back(given_baseline(plan));
  for (const Run& run : plan.runs) {
    if (results.find(run.name) != nullptr || status_of(run).state != RunState::kComplete) continue;
    Result result = result_of(read_metrics(run), plan);
    result.name = run.name;
    result.label = run.group->label;
    result.group = run.group->name;
    result.repetition = run.repetition;
    results.runs.push_back(std::move(result));
  }
  const std::string& first = plan.preset->groups.front().name;
  const Result* reference = nullptr;
  for (const Result& result : results.runs) {
    if (result.group == first && result.repetition == 1) reference = &result;
  }
  if (reference == nullptr) return results;
  results.reference = reference->name;
  for (Result& result : results.runs) {
    if (&result != reference) result.comparison = compare(reference->log, result.log);
  }
  return results;
}

}  // namespace shardloom::study
