// How tokens reach the ranks of their experts and come back (GShard, Lepikhin et al. 2020;
// MegaBlocks' dropless dispatch). Gradients are those of the sum of all ranks' losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "shardloom/distributed/group.h"

namespace shardloom::parallel {

enum class DispatcherKind {
  // Each token goes to the ranks of its experts alone: counts first, then rows with uneven splits.
  kAllToAll,
  // Every rank gets all tokens, computes those of its experts, and the results are summed. Fewer
  // and larger messages; pays when tokens reach most ranks anyway.
  kAllGather,
};

// One call of a module of experts; dispatch() and combine() are collective, once each.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  // What this rank's experts compute: the weighted sum over k for each row.
  struct Local {
    at::Tensor x;        // [R, D]
    at::Tensor weights;  // [R, k]
    at::Tensor experts;  // [R, k] int64, among this rank's experts
  };
  // x [T, D]; weights [T, K]; experts [T, K] int64 ids of all experts.
  virtual Local dispatch(const at::Tensor& x,
                         const at::Tensor& weights,
                         const at::Tensor& experts) = 0;
  // Results [R, D] in the order of Local -> [T, D], the weighted sum over each token's experts.
  virtual at::Tensor combine(const at::Tensor& y) = 0;
};

// A group of one rank gets a dispatcher that passes everything through. `label` names the module in
// messages.
std::unique_ptr<TokenDispatcher> make_token_dispatcher(
    DispatcherKind kind,
    int64_t num_experts,
    const std::shared_ptr<distributed::Group>& group,
    const std::string& label);

}  // namespace shardloom::parallel
