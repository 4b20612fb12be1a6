// metrics.jsonl: one JSON object a line and step, numbers in full precision.
//   iteration, loss, [aux_loss,] grad_norm, lr, elapsed_ms, consumed_samples, tokens,
//   memory_allocated, memory_reserved
//   [, skipped_samples] [, samples_without_target]        the last two only when they are not 0
//   [, expert_load {max_over_mean [layers], unused [layers]}]      of a mixture of experts
//   [, offload {bytes_to_host, bytes_to_device, late_fetches, wait_ms}]      of the first rank
// JSON has no nan: such a value is null, and "non_finite" tells which it was, as in {"loss":
// "nan"}. A validation is a line {"iteration", "validation_steps", "validation_loss"}.
#pragma once

#include <filesystem>
#include <string>

#include "shardloom/trainer/metrics/append_file.h"
#include "shardloom/trainer/metrics/sink.h"

namespace shardloom::trainer {

inline constexpr const char* kMetricsFileName = "metrics.jsonl";

// One line with its newline.
std::string metrics_json_line(const StepMetrics& metrics);
std::string metrics_json_line(const ValidationMetrics& metrics);

class JsonlSink : public MetricsSink {
 public:
  // Appends to metrics_dir/metrics.jsonl. Lines of first_iteration and later (steps that are done
  // again, or a run that starts over) and a line that was cut off are dropped first, by an atomic
  // rewrite. Throws ConfigError.
  JsonlSink(const std::filesystem::path& metrics_dir, int64_t first_iteration);

  void step(const StepMetrics& metrics) override { file_.append(metrics_json_line(metrics)); }
  void validation(const ValidationMetrics& metrics) override {
    file_.append(metrics_json_line(metrics));
  }

 private:
  AppendFile file_;
};

}  // namespace shardloom::trainer
