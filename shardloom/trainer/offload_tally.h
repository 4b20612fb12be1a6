// What activation offload moved in each step.
#pragma once

#include <memory>
#include <optional>

#include "shardloom/features/activation_offload.h"
#include "shardloom/trainer/metrics/step_metrics.h"

namespace shardloom::trainer {

class OffloadTally {
 public:
  // Null: nothing is offloaded.
  void watch(std::unique_ptr<features::ActivationOffload> offload) {
    offload_ = std::move(offload);
  }
  // Since the last call, of this rank.
  std::optional<OffloadMetrics> take();

 private:
  std::unique_ptr<features::ActivationOffload> offload_;
  features::OffloadCounters before_;
};

}  // namespace shardloom::trainer
