// All metrics sinks of a run, made from a few settings. Rank 0 reports; other ranks have no sinks
// or tell their memory.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "shardloom/base/progress.h"
#include "shardloom/trainer/metrics/log_line.h"
#include "shardloom/trainer/metrics/sink.h"
#include "shardloom/trainer/metrics/tensorboard.h"

namespace shardloom::trainer {

struct MetricsOptions {
  LogOrigin origin;
  LineShape line_shape = LineShape::kPureFsdp2;
  int64_t log_interval = 1;     // a console line each so many steps
  int64_t first_iteration = 1;  // above 1 when resuming
  int64_t train_iters = 0;
  std::filesystem::path metrics_dir;  // empty: console only
};

// The log lines, and below them a progress bar where stderr is a terminal.
class ConsoleSink : public MetricsSink {
 public:
  explicit ConsoleSink(MetricsOptions options,
                       std::FILE* out = stdout,
                       Clock clock = std::chrono::system_clock::now);

  void step(const StepMetrics& metrics) override;
  void validation(const ValidationMetrics& metrics) override;
  void memory(const MemoryMetrics& metrics) override;

 private:
  void print(const std::string& line);
  bool is_megatron() const { return options_.line_shape == LineShape::kMegatron; }

  MetricsOptions options_;
  std::FILE* out_;
  Clock clock_;
  ProgressBar progress_;
  StepInterval interval_;  // since the last line; Megatron's alone stands for more than a step
};

// Nothing but the memory line.
class MemoryLineSink : public MetricsSink {
 public:
  void step(const StepMetrics&) override {}
  void validation(const ValidationMetrics&) override {}
  void memory(const MemoryMetrics& metrics) override;
};

class MetricsSinks : public MetricsSink {
 public:
  // Console; with a metrics_dir also metrics.jsonl and TensorBoard events. Throws ConfigError.
  static MetricsSinks make(const MetricsOptions& options);
  // For ranks above 0 with data-parallel rank 0.
  static MetricsSinks memory_only();

  void add(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

  void step(const StepMetrics& metrics) override;
  void validation(const ValidationMetrics& metrics) override;
  void memory(const MemoryMetrics& metrics) override;

 private:
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
};

}  // namespace shardloom::trainer
