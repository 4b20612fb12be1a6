#include "shardloom/trainer/metrics/step_interval.h"

#include <cmath>

namespace shardloom::trainer {

void StepInterval::add(const StepMetrics& step) {
  last_ = step;
  ++num_steps_;
  sums_.elapsed_ms += step.elapsed_ms;
  if (!std::isfinite(step.loss) || !std::isfinite(step.grad_norm)) ++num_not_finite_;
  if (step.is_skipped) {
    ++num_skipped_;
    return;
  }
  sums_.loss += step.loss;
  if (step.aux_loss) sums_.aux_loss = sums_.aux_loss.value_or(0) + *step.aux_loss;
  for (const auto& [name, value] : step.logged) sums_.logged[name] += value;
}

StepMetrics StepInterval::mean() const {
  StepMetrics mean = last_;
  mean.elapsed_ms = sums_.elapsed_ms / static_cast<double>(num_steps_);
  const int64_t num_trained = num_steps_ - num_skipped_;
  if (num_trained == 0) return mean;
  const auto count = static_cast<double>(num_trained);
  mean.loss = sums_.loss / count;
  mean.aux_loss = sums_.aux_loss;
  if (mean.aux_loss) *mean.aux_loss /= count;
  mean.logged = sums_.logged;
  for (auto& [name, value] : mean.logged) value /= count;
  return mean;
}

}  // namespace shardloom::trainer
