// study_json(): the results in full precision, for programs.
#include <cmath>

#include "shardloom/study/study_report.h"

namespace shardloom::study {
namespace {

// JSON has no nan and no infinity.
OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(fmt::format("{}", value));
}

OrderedJson optional_number(const std::optional<double>& value) {
  return value ? number(*value) : OrderedJson(nullptr);
}

OrderedJson machine_json(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"threads_per_rank", machine.threads_per_rank}};
}

OrderedJson run_json(const Result& run) {
  OrderedJson json;
  json["name"] = run.name;
  json["group"] = run.group;
  json["label"] = run.label;
  json["repetition"] = run.repetition;
  json["steps"] = run.log.steps.size();
  json["last_loss"] = number(run.last_loss);
  if (const auto& c = run.comparison) {
    json["compared_steps"] = c->errors.size();
    json["mean_error_percent"] = number(c->mean_percent);
    json["max_error_percent"] = number(c->max.percent);
    json["max_error_iteration"] = c->max.iteration;
    json["iterations_above_limit"] = c->over_limit;
    json["iterations_not_finite"] = c->not_finite;
  }
  json["ms_per_step"] = run.timing ? number(run.timing->mean_ms) : OrderedJson(nullptr);
  json["timed_steps"] = run.timing ? run.timing->steps : 0;
  json["peak_allocated_mib"] = optional_number(run.log.max_allocated_mib);
  json["peak_reserved_mib"] = optional_number(run.log.max_reserved_mib);
  return json;
}

}  // namespace

OrderedJson study_json(const StudyPlan& plan, const Results& results, const Machine& machine) {
  OrderedJson json;
  json["version"] = plan.options.version;
  json["date"] = machine.date;
  json["command"] = plan.options.command;
  json["config"] = plan.options.config;
  json["overrides"] = plan.options.overrides;
  json["preset"] = plan.options.preset;
  json["processes"] = plan.options.nproc;
  json["steps"] = plan.steps;
  json["window"] = {plan.window.first, plan.window.last};
  json["limit_percent"] = kLimitPercent;
  json["machine"] = machine_json(machine);
  json["reference"] = results.reference;
  json["runs"] = OrderedJson::array();
  for (const Result& run : results.runs) json["runs"].push_back(run_json(run));
  return json;
}

}  // namespace shardloom::study
