#include "shardloom/study/study.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/log.h"
#include "shardloom/base/progress.h"
#include "shardloom/base/strings.h"
#include "shardloom/study/results.h"
#include "shardloom/study/state.h"
#include "shardloom/study/study_report.h"

namespace shardloom::study {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The last error in the log; other lines behind it may be of other ranks.
std::string cause_in(const std::filesystem::path& log) {
  std::error_code missing;
  std::string cause = "no error in its log, so it was killed; if nobody did that, memory ran out";
  if (!std::filesystem::exists(log, missing)) return cause;
  for (const std::string& line : split(read_file(log), '\n')) {
    if (line.find("error: ") != std::string::npos) cause = trim(line);
  }
  return cause;
}

void check_ended_well(const Run& run, int exit_code, int64_t steps) {
  const std::filesystem::path log = run.folder / kConsoleLog;
  if (exit_code == static_cast<int>(ExitCode::kInterrupted)) {
    throw InterruptedError(
        "interrupted in {}: the same command starts it anew and keeps the runs before", run.name);
  }
  if (exit_code != 0) {
    throw Error(static_cast<ExitCode>(exit_code),
                fmt::format("{} ended with exit code {}: {}\nits log: {}; the runs before it are "
                            "kept, the same command goes on from there",
                            run.name, exit_code, cause_in(log), log.string()));
  }
  const RunLog metrics = read_metrics(run);
  if (static_cast<int64_t>(metrics.steps.size()) != steps) {
    throw InternalError("{} ended well, but {} has {} steps, not {}; its log: {}", run.name,
                        metrics.name, metrics.steps.size(), steps, log.string());
  }
}

// Before hours of training, not after them.
void check_baseline_log(const StudyPlan& plan) {
  if (!plan.options.baseline_log) return;
  const RunLog log = read_run_log(*plan.options.baseline_log);
  for (const std::string& warning : log.warnings) log::warn("{}", warning);
  const auto is_finite = [](const auto& step) { return std::isfinite(step.second.loss); };
  if (!std::all_of(log.steps.begin(), log.steps.end(), is_finite)) {
    throw DataError(
        "--baseline-log {}: with a loss that is not finite no error is defined; give the log of a "
        "run without, or leave the option out",
        log.name);
  }
  const auto common = static_cast<int64_t>(
      std::distance(log.steps.lower_bound(1), log.steps.upper_bound(plan.steps)));
  if (common == 0) {
    throw ConfigError(
        "--baseline-log {} has iterations {} to {}, but the study 1 to {}: no step "
        "is in both",
        log.name, log.steps.begin()->first, log.steps.rbegin()->first, plan.steps);
  }
  if (common < plan.steps)
    log::warn("--baseline-log {} has {} of the {} steps: errors are over these alone", log.name,
              common, plan.steps);
}

class Conductor {
 public:
  Conductor(const StudyPlan& plan, const StartProcess& start) : plan_(plan), start_(start) {
    for (const Run& run : plan.runs) {
      if (run.selected) selected_.push_back(&run);
    }
  }

  void run() {
    const std::vector<const Run*> open = open_runs();
    open_ = open.size();
    if (open.empty()) log::info("nothing to run");
    for (const Run* run : open) run_one(*run);
    write_study_report(plan_);
    log::info("{}", (plan_.options.out / kStudyMarkdown).string());
  }

 private:
  // Those that have to run, after a word about what is kept.
  std::vector<const Run*> open_runs() {
    std::vector<const Run*> open;
    std::vector<std::string> kept;
    for (const Run* run : selected_) {
      const RunStatus status = status_of(*run);
      if (status.state == RunState::kComplete) {
        kept.push_back(run->name);
        past_seconds_.push_back(status.elapsed_seconds);
        continue;
      }
      open.push_back(run);
      if (status.state == RunState::kUnfinished)
        log::info("{} was not finished: it starts anew", run->name);
      if (status.state == RunState::kChanged)
        log::warn("{} runs again, its inputs have changed: {}", run->name, status.change);
    }
    if (!kept.empty()) log::info("complete: {}", join(kept, ", "));
    return open;
  }

  void run_one(const Run& run) {
    const auto place = std::find(selected_.begin(), selected_.end(), &run) - selected_.begin() + 1;
    const std::string label = fmt::format("[{}/{}] {}", place, selected_.size(), run.name);
    log::info("{}: {}, {} step{}{}", label, describe(*run.group), plan_.steps,
              plan_.steps == 1 ? "" : "s", rest());
    prepare_folder(run);
    const Clock::time_point begin = Clock::now();
    const int exit_code = start_(run.command, run.folder / kConsoleLog);
    check_ended_well(run, exit_code, plan_.steps);
    const double seconds = seconds_since(begin);
    mark_complete(run, plan_.steps, seconds);
    past_seconds_.push_back(seconds);
    --open_;
    write_study_report(plan_);
    log::info("{}: done in {}; {} since the start{}", label, ProgressBar::format_seconds(seconds),
              ProgressBar::format_seconds(seconds_since(start_time_)), rest());
  }

  // ", about 12:30 left", or nothing while no run tells how long one takes.
  std::string rest() const {
    if (past_seconds_.empty() || open_ == 0) return "";
    double sum = 0;
    for (const double seconds : past_seconds_) sum += seconds;
    const double mean = sum / static_cast<double>(past_seconds_.size());
    return fmt::format(", about {} left",
                       ProgressBar::format_seconds(mean * static_cast<double>(open_)));
  }

  const StudyPlan& plan_;
  const StartProcess& start_;
  std::vector<const Run*> selected_;
  std::vector<double> past_seconds_;  // of runs that are complete
  size_t open_ = 0;
  Clock::time_point start_time_ = Clock::now();
};

}  // namespace

void run_study(const StudyPlan& plan, const StartProcess& start) {
  check_baseline_log(plan);
  const FolderClaim claim(plan);
  Conductor(plan, start).run();
}

}  // namespace shardloom::study
