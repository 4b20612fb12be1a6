#include <malloc.h>

#include <cstdlib>
#include <thread>

#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/cli/command.h"
#include "shardloom/config/load.h"
#include "shardloom/trainer/memory_counter.h"
#include "shardloom/trainer/plugin.h"
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

void refuse_several_processes(int nproc) {
  const char* world = std::getenv("WORLD_SIZE");
  const int processes = std::max(nproc, world != nullptr ? std::atoi(world) : 1);
  if (processes > 1) {
    throw ConfigError(
        "{} processes asked for ({}): more than one is not supported yet; leave out --nproc and "
        "WORLD_SIZE",
        processes, nproc > 1 ? "--nproc" : "WORLD_SIZE");
  }
}

void use_all_cores() {
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    at::set_num_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

int train(const TrainArguments& arguments) {
  refuse_several_processes(arguments.nproc);
  keep_memory_resident();
  use_all_cores();
  trainer::install_memory_counter();
  config::LoadedConfig loaded = config::load_train_config(arguments.config, arguments.overrides);
  for (const auto& warning : loaded.warnings) log::warn("{}", warning);
  config::resolve_for_world(loaded, /*world_size=*/1);
  if (const auto problems = config::check_paths(loaded); !problems.empty())
    throw ConfigError("{}", join(problems, "\n"));
  trainer::load_plugins(loaded.config.training.plugin);
  install_interrupt_handlers();

  const auto metrics_dir = loaded.config.training.metrics_dir;
  trainer::Trainer trainer(std::move(loaded));
  const trainer::RunSummary summary = trainer.run();
  log::info("{} after {} steps: loss {:.6f} -> {:.6f}, {:.1f} ms a step{}{}",
            summary.interrupted ? "interrupted" : "done", summary.iterations, summary.first_loss,
            summary.last_loss, summary.mean_elapsed_ms,
            summary.skipped_steps > 0
                ? fmt::format(", {} steps skipped (not finite)", summary.skipped_steps)
                : "",
            metrics_dir ? fmt::format("; metrics in {}", *metrics_dir) : "");
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
      "training.train_iters=100");
  command->callback([arguments, &action] { action = [arguments] { return train(*arguments); }; });
}

}  // namespace shardloom::cli
