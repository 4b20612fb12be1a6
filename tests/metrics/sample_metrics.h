// Steps for the tests of the sinks.
#pragma once

#include <chrono>
#include <cstdlib>
#include <ctime>

#include "shardloom/trainer/metrics/step_metrics.h"

namespace shardloom::trainer {

inline StepMetrics sample_step(int64_t iteration) {
  StepMetrics metrics;
  metrics.iteration = iteration;
  metrics.train_iters = 220;
  metrics.consumed_samples = 2 * iteration;
  metrics.elapsed_ms = 607.2;
  metrics.learning_rate = 1e-5;
  metrics.global_batch_size = 2;
  metrics.loss = 3.509728;
  metrics.grad_norm = 1.0;
  metrics.tokens = 1234;
  metrics.memory_allocated = int64_t{3} << 30;
  metrics.memory_reserved = int64_t{4} << 30;
  return metrics;
}

// 2026-10-20 10:00:00.123 in local time, which is set to UTC.
inline std::chrono::system_clock::time_point sample_time() {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  using namespace std::chrono;
  return sys_days(year(2026) / 10 / 20) + hours(10) + milliseconds(123);
}

}  // namespace shardloom::trainer
