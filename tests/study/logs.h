// The logs of tests/data/logs with their right figures, and lines as the two training paths print
// them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "shardloom/base/json.h"
#include "shardloom/study/run_log.h"

namespace shardloom::study {

inline std::string log_path(const std::string& name) {
  return std::string(SHARDLOOM_TEST_DATA) + "/logs/" + name;
}

inline RunLog read_log(const std::string& name) { return read_run_log(log_path(name)); }

inline Json expected(const std::string& name) {
  return read_json_file(log_path("expected.json"), ExitCode::kInternal).at(name);
}

// Sums of a few hundred doubles in another order differ by less than 1e-13.
inline void expect_equal(double value, double right) {
  EXPECT_NEAR(value, right, 1e-12 * std::abs(right));
}

inline std::string pure_line(int64_t iteration,
                             const std::string& loss,
                             const std::string& elapsed = "12.5") {
  return fmt::format(
      "[Rank 0 | Local Rank 0] 2026-10-20 10:00:00,123 INFO [trainer:1] =>  [2026-10-20 10:00:00] "
      "iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per iteration (ms): {} | "
      "learning rate: 1.000000E-05 | global batch size:     2 | loss: {} | aux loss: 9.000000E-01 "
      "| grad norm: 1.250 |",
      iteration, 220, 2 * iteration, elapsed, loss);
}

inline std::string megatron_line(int64_t iteration, const std::string& loss) {
  return fmt::format(
      " [2026-10-20 10:00:00] iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per "
      "iteration (ms): 12.5 | throughput per GPU (TFLOP/s/GPU): 31.2 | learning rate: 1.000000E-05 "
      "| global batch size:     2 | tokens per sample: 5.120000E+02 | loss: {} | aux_loss: "
      "9.000000E-01 | loss scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 | "
      "number of nan iterations:   0 |",
      iteration, 220, 2 * iteration, loss);
}

inline std::string memory_line(int rank,
                               const std::string& allocated,
                               const std::string& reserved) {
  return fmt::format(
      "[Rank {}] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: {} | reserved: "
      "2.0 | max reserved: {}",
      rank, allocated, reserved);
}

}  // namespace shardloom::study
