// Expert parallelism: the ranks of a group each hold some experts of every layer and send each
// other the tokens that are routed to them (token_dispatcher.h).
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
#include "shardloom/parallel/token_dispatcher.h"

namespace shardloom::parallel {

struct ExpertPlan {
  std::vector<std::string> modules;  // names of the modules of experts
  int64_t num_experts = 0;           // of each
  DispatcherKind dispatcher = DispatcherKind::kAllToAll;
};

// Keeps this rank's experts of every module of the plan and installs the dispatch around its calls.
// Nothing for a group of one rank. On the meta or any device; call before fully_shard. Throws
// ConfigError when the experts do not divide among the ranks.
void expert_parallel(nn::Module& root,
                     const ExpertPlan& plan,
                     const std::shared_ptr<distributed::Group>& group);

}  // namespace shardloom::parallel
