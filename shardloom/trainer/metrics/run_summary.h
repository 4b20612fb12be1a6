// What is said of a run when it ends.
#pragma once

#include <cstdint>
#include <string>

namespace shardloom::trainer {

struct RunSummary {
  int64_t iterations = 0;  // of the whole training
  int64_t steps = 0;       // of them in this run
  double first_loss = 0;
  double last_loss = 0;
  double mean_elapsed_ms = 0;  // without the first step
  int64_t skipped_steps = 0;   // on_nan: skip
  bool interrupted = false;
  // Peak bytes of the rank that used most.
  int64_t max_allocated = 0;
  int64_t max_reserved = 0;
  int num_ranks = 1;
};

// "done after 200 steps: loss 6.236370 -> 2.013546, 30.8 ms a step, peak memory 42.1 MiB". Several
// ranks, memory that the allocator holds beyond the tensors, skipped steps and a metrics folder are
// named where there are any; "interrupted" stands for "done" where it was. "nothing to do after 200
// steps" for a run that had no step left.
std::string summary_line(const RunSummary& summary, const std::string& metrics_dir = {});

}  // namespace shardloom::trainer
