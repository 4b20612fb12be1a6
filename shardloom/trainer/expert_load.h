// How many tokens each expert of each layer got in a step, over all ranks; the first thing to look
// at when a mixture of experts trains badly or slowly.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/metrics/step_metrics.h"

namespace shardloom::trainer {

class ExpertLoads {
 public:
  // Adds a wrapper to every module of experts; after expert_parallel(), so that it sees the ids of
  // all experts. A dense model has none, and take() gives nothing.
  explicit ExpertLoads(models::Model& model);

  // While on, forward passes are counted; those that recomputation runs again in backward are not.
  void count(bool on) { shared_->is_on = on; }

  // Tokens that the router chose each expert for, padding included, since the last call: summed
  // over `world`. Collective.
  std::optional<ExpertLoadMetrics> take(distributed::Group& world);

 private:
  struct Shared {
    bool is_on = false;
    at::Tensor counts;  // [layers, experts] int64
  };
  class Observer;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// counts [layers, experts].
ExpertLoadMetrics load_metrics(const at::Tensor& counts);

}  // namespace shardloom::trainer
