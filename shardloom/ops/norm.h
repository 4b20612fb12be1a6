// Normalisations.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// RMSNorm (transformers Qwen3RMSNorm): x / sqrt(mean(x^2) + eps) in fp32, rounded to x's type, then
// times weight [dim]. x [..., dim]. On CPU one fused pass each way; keeps x and one fp32 factor a
// row.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace shardloom::ops
