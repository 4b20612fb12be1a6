#include <cstdio>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/cli/command.h"
#include "shardloom/cli/usage.h"
#include "shardloom/config/load.h"
#include "shardloom/parallel/unit_schedule.h"
#include "shardloom/trainer/run_check.h"

namespace shardloom::cli {
namespace {

struct CheckArguments {
  std::string config;
  std::vector<std::string> overrides;
  int64_t world = 1;
  bool explain = false;
  bool reference = false;
};

int64_t count_elements(nn::Module& model) {
  int64_t count = 0;
  for (const auto& p : model.named_parameters()) count += p.tensor->numel();
  return count;
}

// Shapes come from the model built on the meta device: nothing is allocated or loaded.
int check(const CheckArguments& arguments) {
  if (arguments.reference) {
    std::fputs(config::reference_markdown().c_str(), stdout);
    return 0;
  }
  if (arguments.config.empty())
    throw ConfigError("shardloom check needs a configuration file (or --reference)");
  config::LoadedConfig loaded = config::load_train_config(arguments.config, arguments.overrides);
  const trainer::TrainerParts parts = trainer::parts_of_config();
  const auto model = trainer::check_run(loaded, arguments.world, parts);
  for (const auto& warning : loaded.warnings) log::warn("{}", warning);
  fmt::print("model: {} parameters in {} modules\n", count_elements(*model),
             model->named_modules().size());
  const std::vector<std::string> order = model->execution_order();
  trainer::rehearse(loaded.config, arguments.world, parts, *model);
  for (const auto& warning : trainer::missing_inputs(loaded.config)) log::warn("{}", warning);
  if (arguments.explain) {
    fmt::print("{}", loaded.dump(/*explain=*/true));
    fmt::print("units of rank 0 of {}, in the order in which forward reaches them:\n{}",
               arguments.world, parallel::schedule_of(*model, order).describe());
  }
  fmt::print("ok: {}\n", arguments.config);
  return 0;
}

}  // namespace

void add_check_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command = app.add_subcommand(
      "check", "Report every error of a configuration before anything is loaded");
  command->add_option("config", arguments->config, "YAML file");
  command->add_option("overrides", arguments->overrides, "key=value, for example training.lr=1e-4");
  command->add_option("--world", arguments->world, "number of processes to check the sizes for")
      ->check(at_least_one())
      ->capture_default_str();
  command->add_flag("--explain", arguments->explain,
                    "print every value, where it comes from, and the schedule of units");
  command->add_flag("--reference", arguments->reference,
                    "print the reference of all keys (docs/config.md)");
  command->footer("Example:\n  shardloom check examples/tiny/train.yaml --world 2 --explain");
  command->callback([arguments, &action] { action = [arguments] { return check(*arguments); }; });
}

}  // namespace shardloom::cli
