// What `shardloom compare` says of two runs: as text, as JSON, as a page.
#pragma once

#include <string>

#include "shardloom/study/compare.h"
#include "shardloom/study/html.h"
#include "shardloom/study/run_log.h"

namespace shardloom::study {

struct ComparedRuns {
  RunLog base;
  RunLog candidate;
  Window window;
  Comparison comparison;
};
// Throws DataError as compare() does.
ComparedRuns compare_runs(RunLog base, RunLog candidate, const Window& window);

std::string report_text(const ComparedRuns& runs);
// Indented, numbers in full precision; the keys are in docs/compare.md.
std::string report_json(const ComparedRuns& runs);
std::string report_html(const ComparedRuns& runs);

// Parts of the text and of the page: steps, last loss, time and memory of both runs; the errors.
Table run_table(const ComparedRuns& runs);
Facts error_facts(const ComparedRuns& runs);

// "no data" for nothing, so that a missing value never looks like a zero.
std::string or_no_data(const std::optional<double>& value, int decimals);

}  // namespace shardloom::study
