#include "shardloom/trainer/metrics/run_summary.h"

#include <fmt/format.h>

namespace shardloom::trainer {
namespace {

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string summary_line(const RunSummary& s, const std::string& metrics_dir) {
  if (s.steps == 0 && !s.interrupted)
    return fmt::format("nothing to do after {} steps", s.iterations);
  std::string line =
      fmt::format("{} after {} steps: loss {:.6f} -> {:.6f}, {:.1f} ms a step, peak memory {}",
                  s.interrupted ? "interrupted" : "done", s.iterations, s.first_loss, s.last_loss,
                  s.mean_elapsed_ms, mebibytes(s.max_allocated));
  if (s.max_reserved > s.max_allocated)
    line += fmt::format(" ({} reserved)", mebibytes(s.max_reserved));
  if (s.num_ranks > 1) line += fmt::format(" on the fullest of {} ranks", s.num_ranks);
  if (s.skipped_steps > 0) line += fmt::format(", {} steps skipped (not finite)", s.skipped_steps);
  if (!metrics_dir.empty()) line += fmt::format("; metrics in {}", metrics_dir);
  return line;
}

}  // namespace shardloom::trainer
