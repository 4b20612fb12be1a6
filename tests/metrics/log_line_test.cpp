// The console lines, character by character as the reference prints them.
#include "shardloom/trainer/metrics/log_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "tests/metrics/sample_metrics.h"

namespace shardloom::trainer {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(LogLine, StepWithPrefixIsTheReferencesLine) {
  StepMetrics metrics = sample_step(1);
  metrics.aux_loss = 0.9;
  const LogOrigin origin{0, 0, "trainer.py:88"};
  EXPECT_EQ(log_prefix(origin, sample_time()) + step_line(metrics, sample_time()),
            "[Rank 0 | Local Rank 0] 2026-10-20 10:00:00,123 INFO [trainer.py:88] =>  "
            "[2026-10-20 10:00:00] iteration        1/     220 | consumed samples:            2 | "
            "elapsed time per iteration (ms): 607.2 | learning rate: 1.000000E-05 | "
            "global batch size:     2 | loss: 3.509728E+00 | aux loss: 9.000000E-01 | "
            "grad norm: 1.000 |");
}

TEST(LogLine, StepWithoutAuxLoss) {
  StepMetrics metrics = sample_step(100);
  metrics.learning_rate = 0;
  metrics.grad_norm = 13.607739448547363;
  metrics.elapsed_ms = 12345.678;
  EXPECT_EQ(step_line(metrics, sample_time()),
            " [2026-10-20 10:00:00] iteration      100/     220 | consumed samples:          200 | "
            "elapsed time per iteration (ms): 12345.7 | learning rate: 0.000000E+00 | "
            "global batch size:     2 | loss: 3.509728E+00 | grad norm: 13.608 |");
}

StepInterval interval_of(const std::vector<StepMetrics>& steps) {
  StepInterval interval;
  for (const StepMetrics& step : steps) interval.add(step);
  return interval;
}

TEST(LogLine, MegatronsLine) {
  StepMetrics metrics = sample_step(1);
  metrics.elapsed_ms = 664.207;
  metrics.logged = {{"tokens per sample", 512.5}};
  metrics.aux_loss = 0.9;
  EXPECT_EQ(megatron_step_line(interval_of({metrics}), sample_time()),
            " [2026-10-20 10:00:00] iteration        1/     220 | consumed samples:            2 | "
            "elapsed time per iteration (ms): 664.2 | learning rate: 1.000000E-05 | "
            "global batch size:     2 | tokens per sample: 5.125000E+02 | loss: 3.509728E+00 | "
            "aux_loss: 9.000000E-01 | loss scale: 1.0 | grad norm: 1.000 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |");
  metrics.loss = kNan;
  metrics.is_skipped = true;
  EXPECT_THAT(megatron_step_line(interval_of({metrics}), sample_time()),
              HasSubstr("number of skipped iterations:   1 | number of nan iterations:   1 |"));
}

TEST(LogLine, MegatronsLineIsTheMeanOfItsSteps) {
  std::vector<StepMetrics> steps;
  for (int64_t i = 1; i <= 4; ++i) {
    StepMetrics& step = steps.emplace_back(sample_step(i));
    step.elapsed_ms = 100.0 * static_cast<double>(i);
    step.loss = i == 3 ? kNan : static_cast<double>(i);
    step.grad_norm = static_cast<double>(i);
    step.logged = {{"tokens per sample", 10.0 * static_cast<double>(i)}};
    step.is_skipped = i == 3;
  }
  EXPECT_EQ(megatron_step_line(interval_of(steps), sample_time()),
            " [2026-10-20 10:00:00] iteration        4/     220 | consumed samples:            8 | "
            "elapsed time per iteration (ms): 250.0 | learning rate: 1.000000E-05 | "
            "global batch size:     2 | tokens per sample: 2.333333E+01 | loss: 2.333333E+00 | "
            "loss scale: 1.0 | grad norm: 4.000 | "
            "number of skipped iterations:   1 | number of nan iterations:   1 |");
  steps = {steps[2]};  // nothing was trained
  EXPECT_THAT(megatron_step_line(interval_of(steps), sample_time()), HasSubstr(" loss: nan |"));
}

TEST(LogLine, MegatronsValidation) {
  EXPECT_EQ(megatron_validation_line({.iteration = 50, .steps = 7, .loss = 2.5}),
            " validation loss at iteration 50 on validation set | lm loss value: 2.500000E+00 | lm "
            "loss PPL: 1.218249E+01 |");
  EXPECT_THAT(megatron_validation_line({.is_test = true, .iteration = 50, .loss = 2.5}),
              HasSubstr("on test set"));
}

TEST(LogLine, ValuesThatAreNotFiniteStayReadable) {
  StepMetrics metrics = sample_step(1);
  metrics.loss = kNan;
  metrics.aux_loss = -kInf;
  metrics.grad_norm = kInf;
  const std::string line = step_line(metrics, sample_time());
  EXPECT_THAT(line, HasSubstr("| loss: nan | aux loss: -inf | grad norm: inf |"));
}

TEST(LogLine, TheReferencesOwnPatternFindsTimeAndLoss) {
  const std::regex pattern(
      R"(elapsed time per iteration \(ms\):\s+([0-9.]+)\s+\|.*?loss:\s+([0-9.]+E[+-][0-9]+))");
  StepMetrics metrics = sample_step(7);
  metrics.aux_loss = 0.9;
  const std::string line = step_line(metrics, sample_time());
  std::smatch match;
  ASSERT_TRUE(std::regex_search(line, match, pattern));
  EXPECT_EQ(match[1], "607.2");
  EXPECT_EQ(match[2], "3.509728E+00");
}

TEST(LogLine, PrefixPadsMillisecondsAndNamesRanks) {
  const auto time = sample_time() - std::chrono::milliseconds(118);
  EXPECT_EQ(log_prefix({9, 1, "x:1"}, time),
            "[Rank 9 | Local Rank 1] 2026-10-20 10:00:00,005 INFO [x:1] => ");
}

TEST(LogLine, Validation) {
  EXPECT_EQ(validation_line({.iteration = 50, .steps = 7, .loss = 2.5}, sample_time()),
            " [2026-10-20 10:00:00] ** validation after iteration 50 ** | validation steps: 7 | "
            "validation loss: 2.500000E+00 |");
}

TEST(LogLine, Memory) {
  const MemoryMetrics memory{.rank = 3,
                             .iteration = 2,
                             .allocated = 100 << 20,
                             .max_allocated = (200 << 20) + (1 << 19),
                             .reserved = 300 << 20,
                             .max_reserved = int64_t{310} << 20};
  EXPECT_EQ(memory_line(memory),
            "[Rank 3] (after 2 iterations) memory (MB) | allocated: 100.0 | max allocated: 200.5 | "
            "reserved: 300.0 | max reserved: 310.0");
}

}  // namespace
}  // namespace shardloom::trainer
