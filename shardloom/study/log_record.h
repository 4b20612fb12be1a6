// The records on one line of a run's output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/study/run_log.h"

namespace shardloom::study {

struct LineRecords {
  struct Step {
    int64_t iteration = 0;
    StepRecord record;
  };
  std::vector<Step> steps;  // more than one where a line break was lost
  // Peak MiB told on this line.
  std::optional<double> max_allocated_mib;
  std::optional<double> max_reserved_mib;
  bool cut = false;           // a record begins here that is not whole; its numbers are not read
  bool without_loss = false;  // a whole record that has no field "loss"
};

// A value that is finite and above the peak so far becomes the peak.
void keep_larger(const std::optional<double>& value, std::optional<double>& peak);

// A line of the console: records of both training paths, memory lines. A number counts only when
// " |" or the end of the line stands behind it. `ended`: a line break follows. Megatron prints no
// loss that is nan, but counts it under "number of nan iterations": its loss is nan here.
LineRecords read_console_line(std::string_view line, bool ended);

// A line of metrics.jsonl, from its first '{'; nothing when it is no JSON object.
std::optional<LineRecords> read_metrics_line(std::string_view line);

// Without colours and other terminal sequences.
std::string without_ansi(std::string_view text);

}  // namespace shardloom::study
