// The console lines of MindSpeed-MM's pure-FSDP2 trainer and of Megatron-LM's (megatron/training/
// training.py), field by field, so that their log parsers read ours.
#pragma once

#include <chrono>
#include <string>

#include "shardloom/trainer/metrics/step_interval.h"
#include "shardloom/trainer/metrics/step_metrics.h"

namespace shardloom::trainer {

using TimePoint = std::chrono::system_clock::time_point;

enum class LineShape { kPureFsdp2, kMegatron };

// Who prints: "[Rank 0 | Local Rank 0] 2026-08-08 12:00:00,123 INFO [trainer:1] => " stands before
// the step and validation lines. `origin` is the reference's <logger>:<line>.
struct LogOrigin {
  int rank = 0;
  int local_rank = 0;
  std::string origin = "shardloom.trainer:0";
};

std::string log_prefix(const LogOrigin& origin, TimePoint now);

// " [2026-08-08 12:00:00] iteration        1/     200 | consumed samples: ... | grad norm: 1.084
// |". Times are local time. Values that are not finite print as nan, inf and -inf.
std::string step_line(const StepMetrics& metrics, TimePoint now);

// The same head; behind the batch size the fields of the program's own, loss, loss scale, norm and
// the numbers of skipped and not finite iterations of the interval. It has no prefix.
std::string megatron_step_line(const StepInterval& interval, TimePoint now);

// " [2026-08-08 12:00:00] ** validation after iteration 100 ** | validation steps: 7 | validation
// loss: ... |"; "test" in the places of "validation" for a test set.
std::string validation_line(const ValidationMetrics& metrics, TimePoint now);
// " validation loss at iteration 100 on validation set | lm loss value: 2.5E+00 | lm loss PPL:
// 1.2E+01 |"
std::string megatron_validation_line(const ValidationMetrics& metrics);

// "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.5 | ..."; MB is 2^20 bytes. It has no
// prefix.
std::string memory_line(const MemoryMetrics& metrics);

}  // namespace shardloom::trainer
