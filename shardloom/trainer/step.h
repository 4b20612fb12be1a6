// The arithmetic of one training step: losses and gradients of the micro batches of a global batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/data/batch.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/master_weights.h"

namespace shardloom::trainer {

struct LossOptions {
  loss::LossType type = loss::LossType::kTokenMean;
  double router_aux_loss_coef = 0.0;
};

struct StepResult {
  double loss = 0;  // of the global batch, without the auxiliary loss
  std::optional<double>
      aux_loss;  // token-weighted mean over the micro batches, before the coefficient
  loss::TargetCounts counts;
  int64_t tokens = 0;
  std::vector<std::string> sample_places;
};

// Forward and backward of all micro batches with the denominators of all of them together; the
// gradients stand in `weights` afterwards. Micro batches without a sample are passed over.
StepResult forward_backward(models::Model& model,
                            MasterWeights& weights,
                            std::vector<data::Batch>&& micro_batches,
                            const LossOptions& options);

// Loss of one batch with its own denominators, without gradients; `counts` receives them.
double evaluate(models::Model& model,
                data::Batch&& batch,
                loss::LossType type,
                loss::TargetCounts& counts);

}  // namespace shardloom::trainer
