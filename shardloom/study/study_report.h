// The report of a study: study.md, study.json, study.html and the plots beside them.
#pragma once

#include <string>

#include "shardloom/base/json.h"
#include "shardloom/study/html.h"
#include "shardloom/study/machine.h"
#include "shardloom/study/plan.h"
#include "shardloom/study/results.h"

namespace shardloom::study {

inline constexpr const char* kStudyMarkdown = "study.md";
inline constexpr const char* kStudyJson = "study.json";
inline constexpr const char* kStudyHtml = "study.html";

// Collects what is complete and writes all files of the report, atomically each.
void write_study_report(const StudyPlan& plan);

// The parts, for write_study_report() and tests.
// A row a group; a preset that repeats its groups has their times side by side.
Table study_table(const StudyPlan& plan, const Results& results);
OrderedJson study_json(const StudyPlan& plan, const Results& results, const Machine& machine);

// "0 (equal)", "0.000012 %", "1.520336 %": at least six decimals, and at least three digits that
// are not leading zeros. A value that is not finite stays visible.
std::string error_text(double percent);

}  // namespace shardloom::study
