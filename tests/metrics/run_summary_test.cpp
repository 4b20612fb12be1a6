#include "shardloom/trainer/metrics/run_summary.h"

#include <gtest/gtest.h>

namespace shardloom::trainer {
namespace {

RunSummary sample_summary() {
  RunSummary summary;
  summary.iterations = summary.steps = 200;
  summary.first_loss = 6.25;
  summary.last_loss = 2;
  summary.mean_elapsed_ms = 30.84;
  summary.max_allocated = summary.max_reserved = 45 << 20;
  return summary;
}

TEST(RunSummary, OneRankSaysLossTimeAndPeak) {
  EXPECT_EQ(
      summary_line(sample_summary()),
      "done after 200 steps: loss 6.250000 -> 2.000000, 30.8 ms a step, peak memory 45.0 MiB");
}

TEST(RunSummary, WithoutAStep) {
  RunSummary summary;
  summary.iterations = 6;
  EXPECT_EQ(summary_line(summary), "nothing to do after 6 steps");
}

TEST(RunSummary, EverythingElseIsNamedWhereThereIsAny) {
  RunSummary summary = sample_summary();
  summary.interrupted = true;
  summary.max_reserved = (45 << 20) + (1 << 19);
  summary.num_ranks = 4;
  summary.skipped_steps = 3;
  EXPECT_EQ(summary_line(summary, "out/m"),
            "interrupted after 200 steps: loss 6.250000 -> 2.000000, 30.8 ms a step, peak memory "
            "45.0 MiB (45.5 MiB reserved) on the fullest of 4 ranks, 3 steps skipped (not finite); "
            "metrics in out/m");
}

}  // namespace
}  // namespace shardloom::trainer
