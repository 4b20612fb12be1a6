// Output layer and cross entropy in one, with the logits of a few rows alive at a time.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// weighted_cross_entropy(linear(hidden, weight, bias), targets, weights) as an fp32 scalar.
// hidden [N, D], weight [V, D], bias [V] or undefined, targets [N] int64 in 0..V-1, weights [N]
// fp32 (no gradient), chunk_rows >= 1.
//
// Memory for logits: chunk_rows x V in fp32 instead of N x V. Gradients are computed with the loss,
// while the logits are there (in grad mode, for what requires grad), and wait for backward:
// hidden's in its type, weight's and bias's as fp32 sums over the chunks, rounded once to the
// stored type. Low precision: products as in linear().
at::Tensor chunked_cross_entropy(const at::Tensor& hidden,
                                 const at::Tensor& weight,
                                 const at::Tensor& bias,
                                 const at::Tensor& targets,
                                 const at::Tensor& weights,
                                 int64_t chunk_rows);

}  // namespace shardloom::ops
