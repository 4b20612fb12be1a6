#include "shardloom/trainer/metrics/sinks.h"

#include <fmt/format.h>

#include <utility>

#include "shardloom/trainer/metrics/metrics_jsonl.h"

namespace shardloom::trainer {
namespace {

// In one write, so that lines of several processes do not mix.
void print_line(const std::string& line, std::FILE* out) {
  const std::string text = line + "\n";
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace

ConsoleSink::ConsoleSink(MetricsOptions options, std::FILE* out, Clock clock)
    : options_(std::move(options)),
      out_(out),
      clock_(std::move(clock)),
      progress_("train", options_.train_iters - options_.first_iteration + 1) {}

void ConsoleSink::print(const std::string& line) {
  progress_.clear();
  print_line(line, out_);
}

void ConsoleSink::step(const StepMetrics& metrics) {
  if (is_megatron()) interval_.add(metrics);
  if (metrics.iteration % options_.log_interval == 0) {
    const TimePoint now = clock_();
    print(is_megatron() ? megatron_step_line(interval_, now)
                        : log_prefix(options_.origin, now) + step_line(metrics, now));
    interval_ = {};
  }
  // Counted from this start, so that rate and remaining time hold after a resume.
  progress_.update(metrics.iteration - options_.first_iteration + 1,
                   fmt::format("loss {:.4f}", metrics.loss));
}

void ConsoleSink::validation(const ValidationMetrics& metrics) {
  const TimePoint now = clock_();
  print(is_megatron() ? megatron_validation_line(metrics)
                      : log_prefix(options_.origin, now) + validation_line(metrics, now));
}

void ConsoleSink::memory(const MemoryMetrics& metrics) { print(memory_line(metrics)); }

void MemoryLineSink::memory(const MemoryMetrics& metrics) {
  print_line(memory_line(metrics), stdout);
}

MetricsSinks MetricsSinks::memory_only() {
  MetricsSinks sinks;
  sinks.add(std::make_unique<MemoryLineSink>());
  return sinks;
}

MetricsSinks MetricsSinks::make(const MetricsOptions& options) {
  MetricsSinks sinks;
  sinks.add(std::make_unique<ConsoleSink>(options));
  if (!options.metrics_dir.empty()) {
    sinks.add(std::make_unique<JsonlSink>(options.metrics_dir, options.first_iteration));
    sinks.add(std::make_unique<TensorBoardSink>(options.metrics_dir, options.first_iteration));
  }
  return sinks;
}

void MetricsSinks::step(const StepMetrics& metrics) {
  for (const auto& sink : sinks_) sink->step(metrics);
}

void MetricsSinks::validation(const ValidationMetrics& metrics) {
  for (const auto& sink : sinks_) sink->validation(metrics);
}

void MetricsSinks::memory(const MemoryMetrics& metrics) {
  for (const auto& sink : sinks_) sink->memory(metrics);
}

}  // namespace shardloom::trainer
