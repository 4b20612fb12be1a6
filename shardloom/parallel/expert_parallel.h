// Expert parallelism: the ranks of a group each hold some experts of every layer and send each
// other the tokens that are routed to them (GShard, Lepikhin et al. 2020; MegaBlocks' dropless
// dispatch).
//
// A module of experts is called as forward(x [T, D], weights [T, K], ids [T, K]) -> [T, D] and has
// parameters whose dim 0 is expert-major. Gradients are those of the sum of all ranks' losses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/nn/module.h"

namespace shardloom::parallel {

// Brings tokens to the ranks of their experts and the results back.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  struct Local {
    at::Tensor x;        // [R, D]: tokens for this rank's experts
    at::Tensor experts;  // [R, 1] int64: which of them
  };
  // x [T, D]; experts [T, K] int64 ids of all experts. Collective, as combine() is.
  virtual Local dispatch(const at::Tensor& x, const at::Tensor& experts) = 0;
  // y [R, D] in the order of Local -> [T, D]: the weighted sum over each token's experts.
  virtual at::Tensor combine(const at::Tensor& y, const at::Tensor& weights) = 0;
};

// Each token goes to the ranks of its experts alone: counts first, then rows with uneven splits.
std::unique_ptr<TokenDispatcher> make_all_to_all_dispatcher(
    int64_t num_experts,
    const std::shared_ptr<distributed::Group>& group,
    const std::string& label);

struct ExpertPlan {
  std::vector<std::string> modules;  // names of the modules of experts
  int64_t num_experts = 0;           // of each
};

// Keeps this rank's experts of every module of the plan and installs the dispatch around its calls.
// Nothing for a group of one rank. On the meta or any device; call before fully_shard. Throws
// ConfigError when the experts do not divide among the ranks.
void expert_parallel(nn::Module& root,
                     const ExpertPlan& plan,
                     const std::shared_ptr<distributed::Group>& group);

}  // namespace shardloom::parallel
