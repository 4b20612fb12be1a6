#include "shardloom/trainer/validator.h"

#include <algorithm>

#include "shardloom/base/log.h"
#include "shardloom/trainer/step.h"

namespace shardloom::trainer {
namespace {

double denominator(const loss::TargetCounts& counts, loss::LossType type) {
  switch (type) {
    case loss::LossType::kTokenMean:
      return static_cast<double>(counts.tokens);
    case loss::LossType::kSampleMean:
      return static_cast<double>(counts.samples);
    case loss::LossType::kSquare:
      return counts.inverse_sqrt_tokens;
  }
  return 0;
}

}  // namespace

data::Batch Validator::batch_of(int64_t first, int64_t end) {
  std::vector<data::Sample> samples;
  std::vector<data::BadSample> skipped;
  for (int64_t i = first; i < end; ++i) {
    if (auto sample = data::get_or_skip(*dataset_, i, on_bad_sample_, skipped))
      samples.push_back(std::move(*sample));
  }
  for (const data::BadSample& bad : skipped) {
    if (reported_.insert(bad.index).second) log::warn("validation sample skipped: {}", bad.cause);
  }
  return samples.empty() ? data::Batch() : dataset_->collate(samples);
}

ValidationMetrics Validator::run(StepTarget& target, int64_t iteration) {
  target.model.train(false);
  std::vector<double> sums(2, 0.0);  // of loss * denominator, of denominators
  ValidationMetrics metrics;
  metrics.iteration = iteration;
  metrics.steps = (dataset_->size() + micro_batch_size_ - 1) / micro_batch_size_;
  // Every rank runs the model equally often, with an idle batch where none is left.
  for (int64_t round = 0; round < metrics.steps; round += target.data_parallel.size()) {
    const int64_t first = (round + target.data_parallel.rank()) * micro_batch_size_;
    loss::TargetCounts counts;
    const double loss =
        evaluate(target, batch_of(first, std::min(dataset_->size(), first + micro_batch_size_)),
                 type_, counts);
    sums[0] += loss * denominator(counts, type_);
    // Ranks that share a sample count it once.
    if (target.context_parallel.rank() == 0) sums[1] += denominator(counts, type_);
  }
  sum_over_ranks(target.world, sums);
  target.model.train(true);
  metrics.loss = sums[1] > 0 ? sums[0] / sums[1] : 0.0;
  return metrics;
}

}  // namespace shardloom::trainer
