#include "shardloom/trainer/rank.h"

#include <c10/util/Exception.h>
#include <malloc.h>

#include <cstdlib>

#include "shardloom/base/cores.h"
#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/distributed/launcher.h"
#include "shardloom/distributed/world.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/memory_counter.h"
#include "shardloom/trainer/run_check.h"
#include "shardloom/trainer/same_settings.h"
#include "shardloom/trainer/trainer.h"

namespace shardloom::trainer {
namespace {

// Large blocks stay in the process: fresh pages cost more than the arithmetic on them.
void keep_memory_resident() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
}

distributed::BackendKind backend_kind(distributed::BackendKind unset) {
  const char* name = std::getenv("SHARDLOOM_BACKEND");
  return name == nullptr ? unset : distributed::parse_backend_kind(name);
}

// Cores divided by the ranks of this host, unless somebody has said otherwise.
void use_own_share_of_cores(int local_ranks) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  at::set_num_threads(share_of_cores(local_ranks));
}

}  // namespace

bool has_environment_of_a_rank() {
  return std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
}

int run_as_rank(config::LoadedConfig loaded, TrainerParts parts, distributed::BackendKind backend) {
  distributed::WorldOptions place;
  if (has_environment_of_a_rank()) place = distributed::WorldOptions::from_environment();
  log::set_rank(place.rank, place.world_size);
  keep_memory_resident();
  use_own_share_of_cores(place.local_world_size);
  install_memory_counter();
  auto model = check_run(loaded, place.world_size, parts, TokenIds::kFromTokenizer);
  if (place.rank == 0) {
    for (const auto& warning : loaded.warnings) log::warn("{}", warning);
  }
  // Other ranks may never come.
  install_interrupt_handlers(OnInterrupt::kEnd);

  const std::string metrics_dir = loaded.config.training.metrics_dir.value_or("");
  auto world = place.world_size > 1 ? distributed::World::connect(place, backend_kind(backend))
                                    : distributed::World::alone();
  require_same_settings(*world->group(), loaded.config);
  install_interrupt_handlers();
  Trainer trainer(std::move(loaded), std::move(parts), std::move(model), std::move(world));
  const RunSummary summary = trainer.run();
  log::info("{}", summary_line(summary, metrics_dir));
  return static_cast<int>(summary.interrupted ? ExitCode::kInterrupted : ExitCode::kOk);
}

int launch_ranks(config::LoadedConfig loaded,
                 const TrainerParts& parts,
                 int nproc,
                 const std::vector<std::string>& arguments) {
  if (has_environment_of_a_rank()) {
    throw ConfigError(
        "--nproc {} starts the processes itself, but RANK or WORLD_SIZE is set: leave out one of "
        "the two",
        nproc);
  }
  check_whole(loaded, nproc, parts);
  prepare_folders(loaded.config.training);
  distributed::LaunchOptions options;
  options.command = arguments;
  options.nproc = nproc;
  return distributed::launch_self(std::move(options));
}

int exit_code_of(const std::function<int()>& action) {
  try {
    return action();
  } catch (const Error& error) {
    log::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    log::error("out of memory. Use a smaller micro_batch_size or cutoff_len, or more processes.");
  } catch (const c10::Error& error) {
    log::error("{}", error.what_without_backtrace());
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
  return static_cast<int>(ExitCode::kInternal);
}

}  // namespace shardloom::trainer
