// The training run of one YAML file on one or many ranks: set-up, loop, logs, export.
#pragma once

#include <memory>
#include <optional>

#include "shardloom/config/load.h"
#include "shardloom/data/loader.h"
#include "shardloom/models/model.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/lr_schedule.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/checkpointing.h"
#include "shardloom/trainer/metrics/run_summary.h"
#include "shardloom/trainer/metrics/sinks.h"
#include "shardloom/trainer/offload_tally.h"
#include "shardloom/trainer/saved_run.h"
#include "shardloom/trainer/sharding.h"
#include "shardloom/trainer/step.h"
#include "shardloom/trainer/train_state.h"
#include "shardloom/trainer/validator.h"

namespace shardloom::trainer {

class Trainer {
 public:
  // Builds everything; the configuration has been validated and resolved for the world. Collective
  // over the world, as run() is. Throws shardloom::Error.
  Trainer(config::LoadedConfig config, std::shared_ptr<distributed::World> world);

  // Runs the steps up to training.train_iters, from the first or from those that the checkpoint in
  // training.load has behind it. SIGINT or SIGTERM on any rank ends it on all after the running
  // step (saving if training.save is set).
  RunSummary run();

 private:
  struct StepOutcome {
    StepMetrics metrics;
    bool skipped = false;
    bool interrupted = false;
    bool writing = false;  // a rank's checkpoint is being written in the background
  };
  StepOutcome train_step(int64_t iteration);
  std::vector<data::Batch> next_micro_batches();
  // False for a step that is to be skipped (on_nan); throws where the run must stop.
  bool check_finite(int64_t iteration, const StepResult& step, double grad_norm);
  void make_loader();
  void build_model();
  void load_weights();
  StepTarget step_target();
  void warn_of_unit_order();
  // Peak bytes of the rank that has most, bad samples and expert load of all ranks together;
  // whether one of them is writing.
  void add_of_all_ranks(StepOutcome& outcome);
  MetricsSinks make_sinks() const;
  void save();
  void describe() const;
  bool is_main() const { return world_->rank() == 0; }

  config::LoadedConfig loaded_;
  const config::TrainConfig& config_;
  std::shared_ptr<distributed::World> world_;
  LoadSource source_;
  std::optional<SavedRun> saved_run_;  // while a DCP checkpoint is loaded
  distributed::ParallelMeshes meshes_;
  std::unique_ptr<models::Model> model_;
  std::optional<parallel::FsdpModule> sharded_;
  OffloadTally offload_;
  std::unique_ptr<ExpertLoads> expert_loads_;
  std::vector<parallel::ShardedParameter> parameters_;
  WeightSources weight_sources_;
  std::shared_ptr<const data::Dataset> dataset_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<Validator> validator_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<optim::LrSchedule> schedule_;
  LossOptions loss_options_;
  std::optional<Checkpointing> checkpoints_;
  TrainState state_;  // after the last step
  int64_t train_iters_ = 0;
  int64_t non_finite_in_a_row_ = 0;
};

}  // namespace shardloom::trainer
