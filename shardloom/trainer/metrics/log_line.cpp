#include "shardloom/trainer/metrics/log_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace shardloom::trainer {
namespace {

std::string local_time(TimePoint now) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(now));
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return std::string(text, length);
}

int milliseconds(TimePoint now) {
  using std::chrono::milliseconds;
  const auto since_epoch = std::chrono::floor<milliseconds>(now.time_since_epoch());
  return static_cast<int>((since_epoch % 1000 + milliseconds(1000)).count() % 1000);
}

// {:E} would print NAN and INF in capitals.
std::string scientific(double value) {
  return std::isfinite(value) ? fmt::format("{:.6E}", value) : fmt::format("{}", value);
}

// Shortest decimals, always with a point, as Python prints a float.
std::string megabytes(int64_t bytes) {
  std::string text = fmt::format("{}", static_cast<double>(bytes) / (1 << 20));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string head(const StepMetrics& m, TimePoint now) {
  return fmt::format(
      " [{}] iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per iteration (ms): "
      "{:.1f} | learning rate: {} | global batch size: {:5} |",
      local_time(now), m.iteration, m.train_iters, m.consumed_samples, m.elapsed_ms,
      scientific(m.learning_rate), m.global_batch_size);
}

const char* name_of_set(const ValidationMetrics& metrics) {
  return metrics.is_test ? "test" : "validation";
}

}  // namespace

std::string log_prefix(const LogOrigin& origin, TimePoint now) {
  return fmt::format("[Rank {} | Local Rank {}] {},{:03} INFO [{}] => ", origin.rank,
                     origin.local_rank, local_time(now), milliseconds(now), origin.origin);
}

std::string step_line(const StepMetrics& m, TimePoint now) {
  std::string line = head(m, now) + fmt::format(" loss: {} |", scientific(m.loss));
  if (m.aux_loss) line += fmt::format(" aux loss: {} |", scientific(*m.aux_loss));
  return line + fmt::format(" grad norm: {:.3f} |", m.grad_norm);
}

std::string megatron_step_line(const StepInterval& interval, TimePoint now) {
  const StepMetrics m = interval.mean();
  std::string line = head(m, now);
  for (const auto& [name, value] : m.logged)
    line += fmt::format(" {}: {} |", name, scientific(value));
  line += fmt::format(" loss: {} |", scientific(m.loss));
  if (m.aux_loss) line += fmt::format(" aux_loss: {} |", scientific(*m.aux_loss));
  return line + fmt::format(
                    " loss scale: 1.0 | grad norm: {:.3f} | number of skipped iterations: {:3} | "
                    "number of nan iterations: {:3} |",
                    m.grad_norm, interval.num_skipped(), interval.num_not_finite());
}

std::string validation_line(const ValidationMetrics& metrics, TimePoint now) {
  const char* const set = name_of_set(metrics);
  return fmt::format(" [{}] ** {} after iteration {} ** | {} steps: {} | {} loss: {} |",
                     local_time(now), set, metrics.iteration, set, metrics.steps, set,
                     scientific(metrics.loss));
}

std::string megatron_validation_line(const ValidationMetrics& metrics) {
  constexpr double kMaxExponent = 20;  // as Megatron cuts it
  return fmt::format(
      " validation loss at iteration {} on {} set | lm loss value: {} | lm loss PPL: {} |",
      metrics.iteration, name_of_set(metrics), scientific(metrics.loss),
      scientific(std::exp(std::min(kMaxExponent, metrics.loss))));
}

std::string memory_line(const MemoryMetrics& metrics) {
  return fmt::format(
      "[Rank {}] (after {} iterations) memory (MB) | allocated: {} | max allocated: {} | "
      "reserved: {} | max reserved: {}",
      metrics.rank, metrics.iteration, megabytes(metrics.allocated),
      megabytes(metrics.max_allocated), megabytes(metrics.reserved),
      megabytes(metrics.max_reserved));
}

}  // namespace shardloom::trainer
