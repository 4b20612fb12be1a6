#include "shardloom/study/plan.h"

#include <algorithm>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/study/baseline_inputs.h"
#include "shardloom/study/group_overrides.h"
#include "shardloom/study/machine.h"

namespace shardloom::study {
namespace {

constexpr const char* kBaseline = "baseline";

// The same fault of several groups is one line.
class Faults {
 public:
  void add(const std::string& group, const std::string& text) {
    for (auto& [fault, groups] : faults_) {
      if (fault != text) continue;
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
      return;
    }
    faults_.push_back({text, {group}});
  }
  void throw_if_any() const {
    if (faults_.empty()) return;
    std::vector<std::string> lines;
    for (const auto& [text, groups] : faults_)
      lines.push_back(fmt::format("{}: {}", join(groups, ", "), text));
    throw ConfigError("{}", join(lines, "\n"));
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> faults_;
};

bool is_selected(const Group& group, const StudyOptions& options) {
  if (options.groups.empty()) return !(options.baseline_log && group.name == kBaseline);
  return contains(options.groups, group.name);
}

void check_group_names(const Preset& preset, const StudyOptions& options) {
  std::vector<std::string> names;
  for (const Group& group : preset.groups) names.push_back(group.name);
  for (const std::string& name : options.groups) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError("--groups: no group {}{}; there are {}", name, did_you_mean(name, names),
                        join(names, ", "));
    if (options.baseline_log && name == kBaseline)
      throw ConfigError(
          "--groups names baseline, but --baseline-log has its run already: leave "
          "out one of the two");
  }
}

void check_options(const StudyOptions& options) {
  if (options.nproc < 1) throw ConfigError("--nproc is {}; at least 1 is needed", options.nproc);
  if (options.steps && *options.steps < 1)
    throw ConfigError("--steps is {}; at least 1 is needed", *options.steps);
  if (options.baseline_log && !options.preset.empty())
    throw ConfigError("--baseline-log is for the eight groups, not for --preset {}",
                      options.preset);
  std::error_code missing;
  if (options.baseline_log && !std::filesystem::exists(*options.baseline_log, missing))
    throw ConfigError("--baseline-log: no file {}", options.baseline_log->string());
  if (options.baseline_log && !std::filesystem::is_regular_file(*options.baseline_log)) {
    throw ConfigError(
        "--baseline-log {}: wanted is a file, not a folder or a pipe: it is read "
        "after every group",
        options.baseline_log->string());
  }
  if (options.out.empty()) throw ConfigError("--out is empty; name the folder of the study");
}

// A console of a run is read by people, its metrics by the study.
std::string metrics_override(const std::filesystem::path& folder) {
  return "training.metrics_dir=" + (folder / kMetricsFolder).string();
}

// The value decides nothing of a run, and may stand elsewhere after a move.
std::string inputs_of(config::LoadedConfig loaded) {
  loaded.config.training.metrics_dir.reset();
  return loaded.dump();
}

class Planner {
 public:
  explicit Planner(const StudyOptions& options) : options_(options) {
    shared_ = options.overrides;
    if (options.steps) {
      shared_.push_back(fmt::format("training.train_iters={}", *options.steps));
      shared_.push_back("training.train_epochs=null");
    }
    base_ = load_base_run(options.config, shared_, options.nproc);
    if (base_.loaded.config.training.train_epochs) {
      throw ConfigError(
          "{}: training.train_epochs is set: a study counts steps, say how many with --steps",
          options.config);
    }
  }

  StudyPlan plan() {
    StudyPlan plan;
    plan.options = options_;
    plan.preset = &find_preset(options_.preset);
    plan.steps = base_.loaded.config.training.train_iters;
    plan.window = window_of(plan.steps);
    for (int repetition = 1; repetition <= plan.preset->repetitions; ++repetition) {
      for (const Group& group : plan.preset->groups) add_run(plan, group, repetition);
    }
    faults_.throw_if_any();
    return plan;
  }

 private:
  // Before hours of training, whose times would not be there.
  Window window_of(int64_t steps) const {
    if (!options_.window) return steps >= Window().last ? Window() : Window{steps / 2 + 1, steps};
    if (options_.window->last > steps) {
      throw ConfigError(
          "--window {}:{} ends behind the last step: the study has {}; name steps up to that, or "
          "more with --steps",
          options_.window->first, options_.window->last, steps);
    }
    return *options_.window;
  }

  void add_run(StudyPlan& plan, const Group& group, int repetition) {
    Run run;
    run.group = &group;
    run.repetition = repetition;
    run.name = plan.preset->repetitions == 1 ? group.name
                                             : fmt::format("{}_run{}", group.name, repetition);
    run.folder = options_.out / run.name;
    run.selected = is_selected(group, options_);
    Faults ignored;
    Faults& faults = run.selected ? faults_ : ignored;
    try {
      if (fill(run, faults)) plan.runs.push_back(std::move(run));
    } catch (const ConfigError& error) {
      for (const std::string& line : split(error.what(), '\n')) faults.add(group.name, line);
    }
  }

  // False when the group cannot run; the faults say why.
  bool fill(Run& run, Faults& faults) {
    std::vector<std::string> overrides = shared_;
    for (std::string& text : group_overrides(*run.group, base_)) overrides.push_back(text);
    overrides.push_back(metrics_override(run.folder));
    config::LoadedConfig loaded = config::load_train_config(options_.config, overrides);
    options_.check(loaded, options_.nproc);
    return run.group->megatron ? fill_megatron(run, loaded, faults)
                               : fill_yaml(run, loaded, overrides);
  }

  bool fill_yaml(Run& run,
                 const config::LoadedConfig& loaded,
                 const std::vector<std::string>& overrides) {
    run.command = {options_.program.string(), "train", options_.config};
    run.command.insert(run.command.end(), overrides.begin(), overrides.end());
    add_nproc(run);
    run.files = {{kConfigFile, loaded.dump()}};
    run.inputs = common_inputs() + inputs_of(loaded);
    return true;
  }

  bool fill_megatron(Run& run, const config::LoadedConfig& loaded, Faults& faults) {
    const BaselineInputs inputs = baseline_inputs(loaded.config);
    const std::vector<std::string> flags = inputs.flags(run.folder);
    run.command = {options_.baseline_program.string()};
    run.command.insert(run.command.end(), flags.begin(), flags.end());
    add_nproc(run);
    run.files = inputs.files;
    // Without the study's folder, which may be moved.
    run.inputs = common_inputs() + join(inputs.flags(""), "\n") + "\n";
    for (const auto& [name, content] : inputs.files) run.inputs += name + ":\n" + content;
    return !run.selected || check_megatron(run, inputs, loaded, faults);
  }

  bool check_megatron(const Run& run,
                      const BaselineInputs& inputs,
                      const config::LoadedConfig& loaded,
                      Faults& faults) {
    std::vector<std::string> found;
    if (!std::filesystem::exists(options_.baseline_program)) {
      found.push_back(
          fmt::format("no program {}: it stands beside shardloom; or give the run's "
                      "log with --baseline-log",
                      options_.baseline_program.string()));
    }
    for (std::string& fault : baseline_faults(inputs, loaded, options_.nproc))
      found.push_back(std::move(fault));
    for (const std::string& fault : found) faults.add(run.group->name, fault);
    return found.empty();
  }

  void add_nproc(Run& run) {
    run.command.insert(run.command.end(), {"--nproc", std::to_string(options_.nproc)});
  }

  // The number of threads cuts sums, and so changes last bits.
  std::string common_inputs() const {
    return fmt::format("shardloom {}, {} processes, {} threads each\n", options_.version,
                       options_.nproc, describe_machine(options_.nproc).threads_per_rank);
  }

  const StudyOptions& options_;
  std::vector<std::string> shared_;
  BaseRun base_;
  Faults faults_;
};

}  // namespace

StudyPlan plan_study(const StudyOptions& options) {
  check_options(options);
  check_group_names(find_preset(options.preset), options);
  return Planner(options).plan();
}

std::filesystem::path metrics_file(const Run& run) {
  return run.folder / kMetricsFolder / "metrics.jsonl";
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  std::vector<std::string> parts;
  for (const std::string& word : words) {
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      parts.push_back(word);
      continue;
    }
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    parts.push_back(quoted + "'");
  }
  return join(parts, " ");
}

}  // namespace shardloom::study
