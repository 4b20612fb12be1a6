#include "shardloom/cli/command.h"
#include "shardloom/cli/usage.h"
#include "shardloom/config/load.h"
#include "shardloom/trainer/rank.h"

namespace shardloom::cli {
namespace {

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  int nproc = 1;
};

int train(const TrainArguments& arguments) {
  config::LoadedConfig loaded = config::load_train_config(arguments.config, arguments.overrides);
  if (arguments.nproc == 1)
    return trainer::run_as_rank(std::move(loaded), trainer::parts_of_config());
  std::vector<std::string> command = {"train", arguments.config};
  command.insert(command.end(), arguments.overrides.begin(), arguments.overrides.end());
  return trainer::launch_ranks(std::move(loaded), trainer::parts_of_config(), arguments.nproc,
                               command);
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Fine-tune a model as a YAML file says");
  command->add_option("config", arguments->config, "YAML file")->required();
  command->add_option("overrides", arguments->overrides, "key=value, for example training.lr=1e-4");
  command->add_option("--nproc", arguments->nproc, "number of processes on this host")
      ->check(at_least_one())
      ->capture_default_str();
  command->footer(
      "Example:\n  shardloom train examples/tiny/train.yaml training.lr=5e-4 "
      "training.train_iters=100 --nproc 2\n"
      "Under RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (shardloom launch, torchrun) it is one "
      "rank of a run.");
  command->callback([arguments, &action] { action = [arguments] { return train(*arguments); }; });
}

}  // namespace shardloom::cli
