// Gradient norm and clipping (torch.nn.utils.clip_grad_norm_).
#pragma once

#include <string>
#include <vector>

#include "shardloom/optim/adamw.h"

namespace shardloom::optim {

// Sum of squares of all gradients, in double, over fixed blocks: independent of the number of
// threads.
double squared_norm(const std::vector<OptimizedTensor>& tensors);

// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

// Name of the first tensor with a NaN or infinite gradient; empty when all are finite.
std::string first_non_finite(const std::vector<OptimizedTensor>& tensors);

}  // namespace shardloom::optim
