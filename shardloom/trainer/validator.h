// Loss over a whole validation set, with denominators over all of it.
#pragma once

#include <memory>

#include "shardloom/data/dataset.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/metrics/step_metrics.h"
#include "shardloom/trainer/step.h"

namespace shardloom::trainer {

class Validator {
 public:
  Validator(std::shared_ptr<const data::Dataset> dataset,
            int64_t micro_batch_size,
            loss::LossType type)
      : dataset_(std::move(dataset)), micro_batch_size_(micro_batch_size), type_(type) {}

  // Every sample once, the micro batches dealt out over the ranks in file order; the model is in
  // evaluation mode meanwhile. Collective; the same result on every rank.
  ValidationMetrics run(StepTarget& target, int64_t iteration) const;

 private:
  std::shared_ptr<const data::Dataset> dataset_;
  int64_t micro_batch_size_;
  loss::LossType type_;
};

}  // namespace shardloom::trainer
