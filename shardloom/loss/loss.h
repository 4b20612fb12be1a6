// Loss types as a weight for each target token: loss = sum_t weight_t * cross_entropy_t.
//
// All denominators are those of the GLOBAL batch (all micro batches of a step, all data-parallel
// ranks), so the loss and the gradients do not depend on how the batch is cut (spec: MindSpeed-MM
// loss_func, InternVL len2weight). Samples without a target are left out of means over samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace shardloom::loss {

inline constexpr int64_t kIgnoreIndex = -100;

enum class LossType {
  kTokenMean,   // raw, default, per_token_loss: mean over all target tokens
  kSampleMean,  // per_sample_loss: mean over a sample's targets, then over the samples that have
                // any
  kSquare,      // square_loss: weight 1/sqrt(targets of the sample), normalised by their sum
};

// "raw", "default", "per_token_loss", "per_sample_loss", "square_loss"; throws ConfigError
// otherwise.
LossType parse_loss_type(const std::string& name);

// labels [B, S] -> targets [B, S] int64: targets[b, s] = labels[b, s+1], the last column
// kIgnoreIndex.
at::Tensor shift_labels(const at::Tensor& labels);

// What the denominators are made of; add over micro batches and ranks.
struct TargetCounts {
  int64_t tokens = 0;
  int64_t samples = 0;  // with at least one target
  int64_t samples_without_targets = 0;
  double inverse_sqrt_tokens = 0;  // sum over tokens of 1/sqrt(targets of the sample)

  TargetCounts& operator+=(const TargetCounts& other);
};
TargetCounts count_targets(const at::Tensor& targets);

// fp32 [B, S]; 0 where there is no target. All zeros when the global batch has no target.
at::Tensor token_weights(const at::Tensor& targets, LossType type, const TargetCounts& global);

}  // namespace shardloom::loss
