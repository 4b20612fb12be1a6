// A process of a run, and the one that starts the processes: what the programs of all training
// paths do around check_run() and Trainer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shardloom/trainer/parts.h"

namespace shardloom::trainer {

// Whether RANK or WORLD_SIZE is set: somebody has started this process as one of several.
bool has_environment_of_a_rank();

// Trains as the rank that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say, or alone without them.
// SHARDLOOM_BACKEND goes before `backend`. Returns the exit code: 0, or 130 after an interrupt.
// Throws shardloom::Error.
int run_as_rank(config::LoadedConfig loaded,
                TrainerParts parts,
                distributed::BackendKind backend = distributed::BackendKind::kAuto);

// Checks the run for `nproc` processes, so that what is wrong is said once and not by every rank;
// then starts this program with `arguments` so many times and returns the exit code of the whole.
int launch_ranks(config::LoadedConfig loaded,
                 const TrainerParts& parts,
                 int nproc,
                 const std::vector<std::string>& arguments);

// Runs a program's action. What it throws is told on stderr and becomes the exit code
// (shardloom/base/error.h).
int exit_code_of(const std::function<int()>& action);

}  // namespace shardloom::trainer
