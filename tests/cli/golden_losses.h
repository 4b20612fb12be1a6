// Losses against those of transformers (tests/data/golden/moe/golden.json).
#pragma once

#include <cmath>

#include "tests/cli/program.h"

namespace shardloom::testing {

// Of the golden trajectory, 200 steps.
inline std::vector<double> golden_losses() {
  std::vector<double> values;
  const Json golden = read_json_file(std::string(SHARDLOOM_TEST_DATA) + "/golden/moe/golden.json",
                                     ExitCode::kInternal);
  for (const Json& row : golden["trajectory"]["values"]) values.push_back(row[2]);
  return values;
}

// Two right fp32 implementations stay within a mean of 2e-7 and a maximum of 3e-6 over 200 steps;
// the limits leave room for other kernels.
inline void expect_close(const std::vector<double>& losses, const std::vector<double>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double error = std::abs(losses[i] - expected[i]) / expected[i];
    sum += error;
    EXPECT_LE(error, 1e-4) << "step " << i + 1;
  }
  EXPECT_LE(sum / static_cast<double>(losses.size()), 1e-5);
}

inline void expect_golden_losses(const std::vector<double>& losses) {
  expect_close(losses, golden_losses());
}

}  // namespace shardloom::testing
