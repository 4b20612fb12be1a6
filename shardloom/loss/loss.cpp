#include "shardloom/loss/loss.h"

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::loss {
namespace {

at::Tensor targets_per_row(const at::Tensor& targets) {
  return targets.ge(0).sum(1).to(at::kDouble);
}

}  // namespace

LossType parse_loss_type(const std::string& name) {
  if (name == "raw" || name == "default" || name == "per_token_loss") return LossType::kTokenMean;
  if (name == "per_sample_loss") return LossType::kSampleMean;
  if (name == "square_loss") return LossType::kSquare;
  throw ConfigError(
      "features.loss_cfg.loss_type: unknown value \"{}\"{}", name,
      did_you_mean(name, {"raw", "default", "per_token_loss", "per_sample_loss", "square_loss"}));
}

at::Tensor shift_labels(const at::Tensor& labels) {
  at::Tensor targets = at::full_like(labels, kIgnoreIndex);
  const int64_t length = labels.size(1);
  if (length > 1) targets.narrow(1, 0, length - 1).copy_(labels.narrow(1, 1, length - 1));
  return targets;
}

TargetCounts& TargetCounts::operator+=(const TargetCounts& other) {
  tokens += other.tokens;
  samples += other.samples;
  samples_without_targets += other.samples_without_targets;
  inverse_sqrt_tokens += other.inverse_sqrt_tokens;
  return *this;
}

TargetCounts count_targets(const at::Tensor& targets) {
  const at::Tensor per_row = targets_per_row(targets.to(at::kCPU)).contiguous();
  TargetCounts counts;
  for (int64_t row = 0; row < per_row.size(0); ++row) {
    const double n = per_row.const_data_ptr<double>()[row];
    counts.tokens += static_cast<int64_t>(n);
    counts.samples += n > 0 ? 1 : 0;
    counts.samples_without_targets += n > 0 ? 0 : 1;
    counts.inverse_sqrt_tokens += std::sqrt(n);  // n tokens of weight 1/sqrt(n)
  }
  return counts;
}

at::Tensor token_weights(const at::Tensor& targets, LossType type, const TargetCounts& global) {
  const at::Tensor mask = targets.ge(0);
  if (global.tokens == 0) return at::zeros(targets.sizes(), targets.options().dtype(at::kFloat));
  const at::Tensor per_row = targets_per_row(targets).clamp_min(1.0);
  at::Tensor row_weight;
  switch (type) {
    case LossType::kTokenMean:
      row_weight = at::full_like(per_row, 1.0 / static_cast<double>(global.tokens));
      break;
    case LossType::kSampleMean:
      row_weight = 1.0 / (per_row * static_cast<double>(global.samples));
      break;
    case LossType::kSquare:
      row_weight = 1.0 / (per_row.sqrt() * global.inverse_sqrt_tokens);
      break;
  }
  return (mask * row_weight.unsqueeze(1)).to(at::kFloat);
}

}  // namespace shardloom::loss
