// Cross entropy with a weight for each row.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// sum_i weights[i] * (logsumexp(logits[i]) - logits[i, targets[i]]) in fp32, as a scalar.
// logits [N, V] of any floating type, targets [N] int64 in 0..V-1, weights [N] fp32 (no gradient).
// N may be 0: the value is 0 and the gradient an empty tensor. Keeps the logits and one fp32 a row.
at::Tensor weighted_cross_entropy(const at::Tensor& logits,
                                  const at::Tensor& targets,
                                  const at::Tensor& weights);

}  // namespace shardloom::ops
