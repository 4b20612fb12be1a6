#include <cmath>

#include "shardloom/base/json.h"
#include "shardloom/study/report.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

OrderedJson number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson run_json(const RunLog& run, const Window& window) {
  const auto time = timing(run, window);
  const auto& [last_iteration, last_step] = *run.steps.rbegin();
  OrderedJson json;
  json["file"] = run.name;
  json["steps"] = run.steps.size();
  json["first_iteration"] = run.steps.begin()->first;
  json["last_iteration"] = last_iteration;
  json["last_loss"] = number(last_step.loss);
  json["mean_ms"] = number(time ? std::optional(time->mean_ms) : std::nullopt);
  json["timed_steps"] = time ? time->steps : 0;
  json["max_allocated_mib"] = number(run.max_allocated_mib);
  json["max_reserved_mib"] = number(run.max_reserved_mib);
  json["warnings"] = run.warnings;
  return json;
}

}  // namespace

std::string report_json(const ComparedRuns& runs) {
  const Comparison& result = runs.comparison;
  OrderedJson json;
  json["base"] = run_json(runs.base, runs.window);
  json["candidate"] = run_json(runs.candidate, runs.window);
  json["window"] = {runs.window.first, runs.window.last};
  json["ok"] = result.ok();
  json["compared_steps"] = result.errors.size();
  json["mean_error_percent"] = number(result.mean_percent);
  json["max_error_percent"] = number(result.max.percent);
  json["max_error_iteration"] = result.max.iteration;
  json["limit_percent"] = kLimitPercent;
  json["steps_over_limit"] = result.over_limit;
  json["not_finite"] = result.not_finite;
  json["only_base"] = ranges(result.only_base);
  json["only_candidate"] = ranges(result.only_candidate);
  // A file name may hold bytes that are not UTF-8.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace shardloom::study
