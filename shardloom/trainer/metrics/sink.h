// Something that takes the metrics of a run: console, metrics.jsonl, TensorBoard.
#pragma once

#include "shardloom/trainer/metrics/step_metrics.h"

namespace shardloom::trainer {

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // Every step, whatever the log interval.
  virtual void step(const StepMetrics& metrics) = 0;
  virtual void validation(const ValidationMetrics& metrics) = 0;
  // Once, when the allocations of a step have all been made; most sinks have no use for it.
  virtual void memory(const MemoryMetrics&) {}
};

}  // namespace shardloom::trainer
