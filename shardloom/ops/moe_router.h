// The choice of experts. For the files of moe.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// Indices of the k largest of each row of probabilities [T, E] fp32, largest first, the lower id
// first among equals (at::topk leaves ties open) -> [T, k] int64.
at::Tensor top_k_ids(const at::Tensor& probabilities_TE, int64_t k);

}  // namespace shardloom::ops
