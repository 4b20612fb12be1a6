// The arithmetic of one training step: losses and gradients of the micro batches of a global batch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/data/batch.h"
#include "shardloom/distributed/group.h"
#include "shardloom/loss/loss.h"
#include "shardloom/models/model.h"
#include "shardloom/parallel/fully_shard.h"
#include "shardloom/trainer/expert_load.h"
#include "shardloom/trainer/forward_step.h"

namespace shardloom::trainer {

struct LossOptions {
  loss::LossType type = loss::LossType::kTokenMean;
  double router_aux_loss_coef = 0.0;
};

// A sharded model and the groups of its ranks. Gradients are summed over all of them
// (parallel::ShardingPlan::sum_gradients).
struct StepTarget {
  models::Model& model;
  parallel::FsdpModule sharded;
  distributed::Group& data_parallel;     // other samples of the same global batch
  distributed::Group& context_parallel;  // the same samples, other parts of their sequences
  distributed::Group& world;             // both
  ExpertLoads* expert_loads = nullptr;   // null: not counted
  ForwardStep forward_step = model_forward_step;
};

// The same on every rank, but for sample_places.
struct StepResult {
  double loss = 0;                       // of the global batch, without the auxiliary loss
  std::optional<double> aux_loss;        // of the global batch, before the coefficient
  std::map<std::string, double> logged;  // LossReport::logged
  loss::TargetCounts counts;
  int64_t tokens = 0;
  bool interrupted = false;                // a rank was asked to stop
  std::vector<std::string> sample_places;  // of this rank
};

// Forward and backward of all micro batches with the denominators of the global batch; the
// gradients stand in the shards afterwards. The router's auxiliary loss needs the routing of the
// whole global batch before the first backward: with several micro batches they run forward once
// more. A rank without a sample computes the model's idle
// batch, so that all ranks run the same collectives. Collective over target.world.
StepResult forward_backward(StepTarget& target,
                            std::vector<data::Batch>&& micro_batches,
                            const LossOptions& options,
                            bool interrupted);

// Loss of one batch with its own denominators, without gradients; `counts` receives them. An empty
// batch gives 0 and is computed as idle. Of a sequence that is cut, the loss of the own part.
double evaluate(StepTarget& target,
                data::Batch&& batch,
                loss::LossType type,
                loss::TargetCounts& counts);

// values[i] <- sum over ranks, in rank order.
void sum_over_ranks(distributed::Group& group, std::vector<double>& values);

}  // namespace shardloom::trainer
