// Arbitrary bytes as a log: records are read or it is refused with a DataError; a run beside itself
// has no error, and its page is valid UTF-8.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/study/report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardloom::study;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RunLog log;
  try {
    log = parse_run_log(text, "fuzz.log");
  } catch (const shardloom::DataError&) {
    return 0;
  }
  if (log.steps.empty()) std::abort();
  const ComparedRuns runs = compare_runs(log, log, {});
  for (const StepError& error : runs.comparison.errors) {
    if (error.percent != 0) std::abort();
  }
  if (shardloom::find_invalid_utf8(report_html(runs))) std::abort();
  return 0;
}
