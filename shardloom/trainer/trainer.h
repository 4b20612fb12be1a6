// A training run on one or many ranks: set-up, loop, logs, checkpoints.
#pragma once

#include <memory>
#include <optional>

#include "shardloom/config/load.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/lr_schedule.h"
#include "shardloom/trainer/checkpointing.h"
#include "shardloom/trainer/metrics/run_summary.h"
#include "shardloom/trainer/metrics/sinks.h"
#include "shardloom/trainer/offload_tally.h"
#include "shardloom/trainer/parts.h"
#include "shardloom/trainer/saved_run.h"
#include "shardloom/trainer/step.h"
#include "shardloom/trainer/train_state.h"
#include "shardloom/trainer/validator.h"

namespace shardloom::trainer {

class Trainer {
 public:
  // Builds everything around `model`, which check_run() has made of the configuration and of the
  // same parts. Collective over the world, as run() is. Throws shardloom::Error.
  Trainer(config::LoadedConfig config,
          TrainerParts parts,
          std::shared_ptr<models::Model> model,
          std::shared_ptr<distributed::World> world);

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
  void shard_model();
  void make_data();
  // Where this rank begins in its training set; fixes length, schedule and state of the run.
  LoaderPlace place_in(const data::Dataset& dataset);
  void load_weights();
  StepTarget step_target();
  void warn_of_unit_order();
  // Peak bytes of the rank that has most, bad samples and expert load of all ranks together;
  // whether one of them is writing.
  void add_of_all_ranks(StepOutcome& outcome);
  MetricsSinks make_sinks() const;
  void save();
  // What the set gives, told on the ranks that tell steps.
  void evaluate(Validator& set, bool is_test, MetricsSinks& sinks);
  void describe() const;
  bool is_main() const { return world_->rank() == 0; }
  // Megatron's lines are told by the last rank.
  bool tells_steps() const;

  config::LoadedConfig loaded_;
  const config::TrainConfig& config_;
  TrainerParts parts_;
  std::shared_ptr<distributed::World> world_;
  LoadSource source_;
  std::optional<SavedRun> saved_run_;  // while a DCP checkpoint is loaded
  distributed::ParallelMeshes meshes_;
  std::shared_ptr<models::Model> model_;
  std::optional<parallel::FsdpModule> sharded_;
  OffloadTally offload_;
  std::unique_ptr<ExpertLoads> expert_loads_;
  std::vector<parallel::ShardedParameter> parameters_;
  WeightSources weight_sources_;
  int64_t num_samples_ = 0;
  std::unique_ptr<data::Loader> loader_;
  std::optional<Validator> validator_;
  std::optional<Validator> tester_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<optim::LrSchedule> schedule_;
  LossOptions loss_options_;
  std::optional<Checkpointing> checkpoints_;
  TrainState state_;  // after the last step
  int64_t train_iters_ = 0;
  int64_t non_finite_in_a_row_ = 0;
  int64_t skipped_before_ = 0;  // bad samples, in the runs that this one goes on from
};

}  // namespace shardloom::trainer
