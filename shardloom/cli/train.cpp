#include <malloc.h>

#include <cstdlib>
#include <thread>

#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/cli/command.h"
#include "shardloom/cli/launch.h"
#include "shardloom/config/load.h"
#include "shardloom/distributed/world.h"
#include "shardloom/trainer/memory_counter.h"
#include "shardloom/trainer/run_check.h"
#include "shardloom/trainer/trainer.h"

namespace shardloom::cli {
namespace {

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  int nproc = 1;
};

// Large blocks stay in the process: fresh pages cost more than the arithmetic on them.
void keep_memory_resident() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
}

bool has_environment_of_a_rank() {
  return std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
}

distributed::BackendKind backend_kind() {
  const char* name = std::getenv("SHARDLOOM_BACKEND");
  return name == nullptr ? distributed::BackendKind::kAuto : distributed::parse_backend_kind(name);
}

// Cores divided by the ranks of this host, unless somebody has said otherwise.
void use_own_share_of_cores(int local_ranks) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  at::set_num_threads(std::max(1, cores / local_ranks));
}

// Checked whole, before anything heavy is made.
config::LoadedConfig load(const TrainArguments& arguments, int world_size) {
  config::LoadedConfig loaded = config::load_train_config(arguments.config, arguments.overrides);
  trainer::check_run(loaded, world_size);
  return loaded;
}

// What is wrong with the configuration is said once, here, and not by every rank.
int launch_ranks(const TrainArguments& arguments) {
  if (has_environment_of_a_rank()) {
    throw ConfigError(
        "--nproc {} starts the processes itself, but RANK or WORLD_SIZE is set: leave out one of "
        "the two",
        arguments.nproc);
  }
  load(arguments, arguments.nproc);
  std::vector<std::string> command = {"train", arguments.config};
  command.insert(command.end(), arguments.overrides.begin(), arguments.overrides.end());
  return launch_self(arguments.nproc, command);
}

int train(const TrainArguments& arguments) {
  if (arguments.nproc > 1) return launch_ranks(arguments);
  distributed::WorldOptions place;
  if (has_environment_of_a_rank()) place = distributed::WorldOptions::from_environment();
  log::set_rank(place.rank, place.world_size);
  keep_memory_resident();
  use_own_share_of_cores(place.local_world_size);
  trainer::install_memory_counter();
  config::LoadedConfig loaded = load(arguments, place.world_size);
  if (place.rank == 0) {
    for (const auto& warning : loaded.warnings) log::warn("{}", warning);
  }
  install_interrupt_handlers();

  const auto metrics_dir = loaded.config.training.metrics_dir;
  trainer::Trainer trainer(std::move(loaded),
                           place.world_size > 1 ? distributed::World::connect(place, backend_kind())
                                                : distributed::World::alone());
  const trainer::RunSummary summary = trainer.run();
  log::info("{}", trainer::summary_line(summary, metrics_dir.value_or("")));
  return static_cast<int>(summary.interrupted ? ExitCode::kInterrupted : ExitCode::kOk);
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Fine-tune a model as a YAML file says");
  command->add_option("config", arguments->config, "YAML file")->required();
  command->add_option("overrides", arguments->overrides, "key=value, for example training.lr=1e-4");
  command->add_option("--nproc", arguments->nproc, "number of processes on this host")
      ->check(CLI::PositiveNumber);
  command->footer(
      "Example:\n  shardloom train examples/tiny/train.yaml training.lr=5e-4 "
      "training.train_iters=100 --nproc 2\n"
      "Under RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (shardloom launch, torchrun) it is one "
      "rank of a run.");
  command->callback([arguments, &action] { action = [arguments] { return train(*arguments); }; });
}

}  // namespace shardloom::cli
