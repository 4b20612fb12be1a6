// The training run of one YAML file: set-up, loop, logs, export.
#pragma once

#include <memory>
#include <optional>

#include "shardloom/config/load.h"
#include "shardloom/data/loader.h"
#include "shardloom/models/model.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/lr_schedule.h"
#include "shardloom/trainer/master_weights.h"
#include "shardloom/trainer/metrics/sinks.h"
#include "shardloom/trainer/step.h"
#include "shardloom/trainer/validator.h"

namespace shardloom::trainer {

struct RunSummary {
  int64_t iterations = 0;
  double first_loss = 0;
  double last_loss = 0;
  double mean_elapsed_ms = 0;  // without the first step
  int64_t skipped_steps = 0;   // on_nan: skip
  bool interrupted = false;
};

class Trainer {
 public:
  // Builds everything; the configuration has been validated and resolved. Throws shardloom::Error.
  explicit Trainer(config::LoadedConfig config);

  // Runs training.train_iters steps. SIGINT or SIGTERM ends it after the running step (saving if
  // training.save is set).
  RunSummary run();

 private:
  struct StepOutcome {
    StepMetrics metrics;
    bool skipped = false;
  };
  StepOutcome train_step(int64_t iteration);
  std::vector<data::Batch> next_micro_batches();
  // False for a step that is to be skipped (on_nan); throws where the run must stop.
  bool check_finite(int64_t iteration, const StepResult& step, double grad_norm);
  void save(int64_t iteration);
  void describe() const;

  config::LoadedConfig loaded_;
  const config::TrainConfig& config_;
  std::unique_ptr<models::Model> model_;
  std::shared_ptr<const data::Dataset> dataset_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<Validator> validator_;
  std::optional<MasterWeights> weights_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<optim::LrSchedule> schedule_;
  LossOptions loss_options_;
  int64_t train_iters_ = 0;
  int64_t non_finite_in_a_row_ = 0;
};

}  // namespace shardloom::trainer
