#include "shardloom/study/study.h"

#include <filesystem>
#include <memory>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/cli/child_process.h"
#include "shardloom/cli/command.h"
#include "shardloom/trainer/rank.h"
#include "shardloom/trainer/run_check.h"

namespace shardloom::cli {
namespace {

struct StudyArguments {
  study::StudyOptions options;
  std::string out;
  std::optional<std::string> groups;
  std::string window;
  std::string baseline_log;
};

// The command without the places of this machine's programs.
std::string typed(const StudyArguments& a) {
  const study::StudyOptions& o = a.options;
  std::vector<std::string> words = {"shardloom", "study", o.config};
  words.insert(words.end(), o.overrides.begin(), o.overrides.end());
  const auto add = [&words](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--out", a.out);
  add("--preset", o.preset);
  add("--groups", a.groups.value_or(""));
  add("--steps", o.steps ? std::to_string(*o.steps) : "");
  add("--window", a.window);
  add("--baseline-log", a.baseline_log);
  add("--nproc", std::to_string(o.nproc));
  return study::shell_text(words);
}

// "none, all" as "none,all".
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string& name : split(list, ',')) {
    if (!trim(name).empty()) names.emplace_back(trim(name));
  }
  if (names.empty()) throw ConfigError("--groups names no group; leave it out to run all");
  return names;
}

int run_study(StudyArguments arguments) {
  if (trainer::has_environment_of_a_rank()) {
    throw ConfigError(
        "study starts its processes itself, but RANK or WORLD_SIZE is set: start it without them");
  }
  study::StudyOptions& options = arguments.options;
  options.command = typed(arguments);
  options.out = arguments.out;
  if (arguments.groups) options.groups = names_in(*arguments.groups);
  if (!arguments.window.empty()) options.window = study::parse_window(arguments.window);
  if (!arguments.baseline_log.empty()) options.baseline_log = arguments.baseline_log;
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  options.baseline_program = options.program.parent_path() / "pretrain_transformers";
  options.version = SHARDLOOM_VERSION;
  options.check = [](config::LoadedConfig& loaded, int64_t world) {
    trainer::check_whole(loaded, world, trainer::parts_of_config());
  };
  study::run_study(study::plan_study(options), run_logged);
  return 0;
}

}  // namespace

void add_study_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<StudyArguments>();
  study::StudyOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "study", "Train with each feature alone and with all, and compare loss, time and memory");
  command->add_option("config", options.config, "YAML file that all groups share")->required();
  command->add_option("overrides", options.overrides, "key=value, for all groups");
  command->add_option("--out", arguments->out, "folder of the study; a stopped study goes on there")
      ->required();
  command->add_option("--groups", arguments->groups,
                      "only these, as in none,all: baseline, none, cp, ep, recompute, chunk_loss, "
                      "offload, all");
  command->add_option("--steps", options.steps, "in place of training.train_iters");
  command->add_option("--window", arguments->window,
                      "steps whose times count, as in 100:200 (default; of a shorter run the "
                      "second half)");
  command->add_option("--baseline-log", arguments->baseline_log,
                      "log or metrics.jsonl of a run that takes the baseline's place");
  command->add_option("--nproc", options.nproc, "number of processes of each run")
      ->capture_default_str();
  command->add_option("--preset", options.preset,
                      "other groups, each run twice: prefetch (counts and order of units), ep "
                      "(EP1 and EP2 on both paths)");
  command->footer(
      "Example:\n  shardloom study examples/tiny/train.yaml training.lr=1e-5 --steps 2000 "
      "--out out/study");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_study(*arguments); }; });
}

}  // namespace shardloom::cli
