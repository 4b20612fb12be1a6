// Loss over a whole validation set, with denominators over all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "shardloom/data/dataset.h"
#include "shardloom/data/loader.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/metrics/step_metrics.h"
#include "shardloom/trainer/step.h"

namespace shardloom::trainer {

class Validator {
 public:
  Validator(std::shared_ptr<const data::Dataset> dataset,
            int64_t micro_batch_size,
            loss::LossType type,
            data::OnBadSample on_bad_sample)
      : dataset_(std::move(dataset)),
        micro_batch_size_(micro_batch_size),
        type_(type),
        on_bad_sample_(on_bad_sample) {}

  // Every sample once, the micro batches dealt out over the ranks in file order; the model is in
  // evaluation mode meanwhile. Collective; the same result on every rank. Throws DataError for a
  // bad sample unless those are to be left out; each is reported once.
  ValidationMetrics run(StepTarget& target, int64_t iteration);

 private:
  // Samples first .. end - 1 of the data set, as one batch; empty when none is left.
  data::Batch batch_of(int64_t first, int64_t end);

  std::shared_ptr<const data::Dataset> dataset_;
  int64_t micro_batch_size_;
  loss::LossType type_;
  data::OnBadSample on_bad_sample_;
  std::set<int64_t> reported_;
};

}  // namespace shardloom::trainer
