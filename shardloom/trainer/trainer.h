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
#include "shardloom/trainer/metrics/run_summary.h"
#include "shardloom/trainer/metrics/sinks.h"
#include "shardloom/trainer/sharding.h"
#include "shardloom/trainer/step.h"
#include "shardloom/trainer/validator.h"

namespace shardloom::trainer {

class Trainer {
 public:
  // Builds everything; the configuration has been validated and resolved for the world. Collective
  // over the world, as run() is. Throws shardloom::Error.
  Trainer(config::LoadedConfig config, std::shared_ptr<distributed::World> world);

  // Runs training.train_iters steps. SIGINT or SIGTERM on any rank ends it on all after the running
  // step (saving if training.save is set).
  RunSummary run();

 private:
  struct StepOutcome {
    StepMetrics metrics;
    bool skipped = false;
    bool interrupted = false;
  };
  StepOutcome train_step(int64_t iteration);
  std::vector<data::Batch> next_micro_batches();
  // False for a step that is to be skipped (on_nan); throws where the run must stop.
  bool check_finite(int64_t iteration, const StepResult& step, double grad_norm);
  void make_loader();
  void build_model();
  StepTarget step_target();
  void warn_of_unit_order();
  // Peak bytes of the rank that has most, and bad samples of all ranks together.
  void add_of_all_ranks(StepMetrics& metrics);
  MetricsSinks make_sinks() const;
  void save(int64_t iteration);
  void describe() const;
  bool is_main() const { return world_->rank() == 0; }

  config::LoadedConfig loaded_;
  const config::TrainConfig& config_;
  std::shared_ptr<distributed::World> world_;
  distributed::ParallelMeshes meshes_;
  std::unique_ptr<models::Model> model_;
  std::optional<parallel::FsdpModule> sharded_;
  std::unique_ptr<features::ActivationOffload> offload_;
  std::vector<parallel::ShardedParameter> parameters_;
  WeightSources weight_sources_;
  std::shared_ptr<const data::Dataset> dataset_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<Validator> validator_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<optim::LrSchedule> schedule_;
  LossOptions loss_options_;
  int64_t train_iters_ = 0;
  int64_t non_finite_in_a_row_ = 0;
};

}  // namespace shardloom::trainer
