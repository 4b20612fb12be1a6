// The steps that one line of Megatron's log stands for (training_log() in Megatron-LM's
// megatron/training/training.py): means of times and losses, numbers of skipped steps.
#pragma once

#include <cstdint>

#include "shardloom/trainer/metrics/step_metrics.h"

namespace shardloom::trainer {

class StepInterval {
 public:
  void add(const StepMetrics& step);

  // The last step, with the mean time of all steps and, of those that were not skipped, the means
  // of loss, aux_loss and logged; its own losses when all were skipped. After add().
  StepMetrics mean() const;
  int64_t num_skipped() const { return num_skipped_; }
  int64_t num_not_finite() const { return num_not_finite_; }

 private:
  StepMetrics last_;
  StepMetrics sums_;  // elapsed_ms of all steps; loss, aux_loss and logged of those not skipped
  int64_t num_steps_ = 0;
  int64_t num_skipped_ = 0;
  int64_t num_not_finite_ = 0;  // loss or gradient norm
};

}  // namespace shardloom::trainer
