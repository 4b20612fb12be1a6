// Gradient norm and clipping (torch.nn.utils.clip_grad_norm_) over the shards of any number of
// ranks and meshes. The norm of a step has the same bits however dim 0 of the tensors is cut, on
// any number of ranks and threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/optim/adamw.h"
#include "shardloom/optim/exact_sum.h"

namespace shardloom::optim {

// Sum of squares of the gradients at hand: each row (slice of dim 0) in double in a fixed order,
// the rows exactly.
ExactSum squared_norm(const std::vector<OptimizedTensor>& tensors);

// Tensors of which each rank of `group` holds other rows, the same list on every rank. Replicas do
// not belong to the group, or they would count twice.
struct GradientShards {
  std::vector<OptimizedTensor> tensors;
  std::shared_ptr<distributed::Group> group;  // null: this process holds them whole
};

// Of all gradients of all sets and ranks together; the same bits on every rank. Collective: one
// all_reduce over each distinct group, in the order in which the groups first appear.
double squared_norm(const std::vector<GradientShards>& sets);

// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

// Name of the first tensor with a NaN or infinite gradient at hand; empty when all are finite.
std::string first_non_finite(const std::vector<OptimizedTensor>& tensors);

}  // namespace shardloom::optim
