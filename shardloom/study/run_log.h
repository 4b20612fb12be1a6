// What a training run has told about its steps: a console log of either training path, or a
// metrics.jsonl. Records are keyed by their iteration, never by their place in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::study {

struct StepRecord {
  double loss = 0;                      // the field "loss"; may be nan or inf
  std::optional<double> elapsed_ms;     // of this step
  std::optional<double> allocated_mib;  // peak up to this step; only in metrics.jsonl
  std::optional<double> grad_norm;
};

struct RunLog {
  std::string name;  // of the file, as given
  std::map<int64_t, StepRecord> steps;
  // Peak MiB of the rank that has most; absent when the file tells none.
  std::optional<double> max_allocated_mib;
  std::optional<double> max_reserved_mib;
  // Cut lines, records without a loss, iterations that stand twice (the last one counts), values
  // that are not finite: with their lines.
  std::vector<std::string> warnings;
};

// Recognises the shape by its content: Megatron's line, that of the pure-FSDP2 trainer
// (spec in trainer/metrics/log_line.h) or JSON lines. ANSI colours, CR LF, progress bars and other
// text between the records are passed over. A last line without a newline is left out unless the
// record on it is whole. Throws DataError when there is no record.
RunLog parse_run_log(std::string_view content, const std::string& name);
// Also from a pipe.
RunLog read_run_log(const std::filesystem::path& path);

}  // namespace shardloom::study
