#include "shardloom/trainer/validator.h"

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

ValidationMetrics Validator::run(models::Model& model, int64_t iteration) const {
  model.train(false);
  double sum = 0, total = 0;
  ValidationMetrics metrics;
  metrics.iteration = iteration;
  for (int64_t first = 0; first < dataset_->size(); first += micro_batch_size_) {
    std::vector<data::Sample> samples;
    for (int64_t i = first; i < std::min(dataset_->size(), first + micro_batch_size_); ++i)
      samples.push_back(dataset_->get(i));
    loss::TargetCounts counts;
    const double loss = evaluate(model, dataset_->collate(samples), type_, counts);
    sum += loss * denominator(counts, type_);
    total += denominator(counts, type_);
    ++metrics.steps;
  }
  model.train(true);
  metrics.loss = total > 0 ? sum / total : 0.0;
  return metrics;
}

}  // namespace shardloom::trainer
