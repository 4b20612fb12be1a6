#include "shardloom/study/study_report.h"

#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/study/plots.h"

namespace shardloom::study {
namespace {

// Groups whose loss is drawn beside the baseline's.
constexpr const char* kPlotted[] = {"none", "all"};

struct StudyReport {
  std::string title;
  std::vector<std::string> facts;  // one sentence each
  std::string command;
  Table table;
  std::vector<std::string> notes;  // how to read the table
  std::vector<LossPlot> plots;
};

std::vector<LossPlot> plots_of(const StudyPlan& plan, const Results& results) {
  std::vector<LossPlot> plots;
  const Result* base = results.find(results.reference);
  if (base == nullptr || plan.preset->repetitions > 1) return plots;
  for (const char* name : kPlotted) {
    if (const Result* run = results.find(name)) plots.push_back(loss_plot(*base, *run));
  }
  return plots;
}

std::vector<std::string> facts_of(const StudyPlan& plan, const Machine& m) {
  const StudyOptions& options = plan.options;
  return {fmt::format("Configuration: {}, {} steps, {} processes on one host.", options.config,
                      plan.steps, options.nproc),
          fmt::format("Machine: {}, {} cores, {} of memory, {} thread{} a process.", m.cpu, m.cores,
                      human_bytes(m.memory_bytes), m.threads_per_rank,
                      m.threads_per_rank == 1 ? "" : "s"),
          fmt::format("Program: shardloom {}, {}.", options.version, m.date)};
}

std::vector<std::string> notes_of(const StudyPlan& plan, const Results& results) {
  std::vector<std::string> notes;
  if (results.reference.empty()) {
    notes.push_back(fmt::format("No errors: {} is not complete.", plan.preset->groups[0].name));
  } else {
    notes.push_back(
        fmt::format("Errors are |loss - loss of {0}| / |loss| of each step; \"0 (equal)\" "
                    "means equal to the last bit in every step.",
                    results.reference));
  }
  for (const Result& run : results.runs) {
    if (!run.comparison) continue;
    const size_t compared = run.comparison->errors.size() + run.comparison->not_finite.size();
    if (static_cast<int64_t>(compared) >= plan.steps) continue;
    notes.push_back(fmt::format("Errors are over the {} of {} steps that {} has too.", compared,
                                plan.steps, results.reference));
    break;
  }
  notes.push_back(
      fmt::format("ms/step is the mean of steps {} to {}.", plan.window.first, plan.window.last));
  notes.emplace_back("Peak memory is that of the rank that has most.");
  if (plan.preset->repetitions > 1)
    notes.emplace_back("Spread is (slowest run - fastest run) / mean.");
  return notes;
}

StudyReport make_report(const StudyPlan& plan, const Results& results, const Machine& machine) {
  return {.title = plan.preset->title,
          .facts = facts_of(plan, machine),
          .command = plan.options.command,
          .table = study_table(plan, results),
          .notes = notes_of(plan, results),
          .plots = plots_of(plan, results)};
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + cell + " |";
  return row + "\n";
}

std::string markdown(const StudyReport& report) {
  std::string text = fmt::format("# {}\n\n", report.title);
  for (const std::string& fact : report.facts) text += fmt::format("- {}\n", fact);
  text += fmt::format("\n```\n{}\n```\n", report.command);
  text += "\n" + markdown_row(report.table.header) + "|---|";
  for (size_t i = 1; i < report.table.header.size(); ++i) text += "---:|";
  text += "\n";
  for (const auto& row : report.table.rows) text += markdown_row(row);
  text += "\n" + join(report.notes, " ") + "\n";
  for (const LossPlot& plot : report.plots)
    text += fmt::format("\n![{}]({}.svg)\n", plot.loss.title, plot.name);
  return text;
}

std::string html(const StudyReport& report) {
  std::string body = list(report.facts) + fmt::format("<pre>{}</pre>\n", escape(report.command));
  body += section("Results", table(report.table) + paragraph(join(report.notes, " ")));
  std::string plots;
  for (const LossPlot& plot : report.plots) plots += svg(plot.loss) + svg(plot.error);
  if (!plots.empty()) body += section("Loss and error", plots);
  return page(report.title, body);
}

}  // namespace

void write_study_report(const StudyPlan& plan) {
  const Results results = collect(plan);
  const Machine machine = describe_machine(plan.options.nproc);
  const StudyReport report = make_report(plan, results, machine);
  const std::filesystem::path& out = plan.options.out;
  try {
    for (const LossPlot& plot : report.plots)
      write_file_atomically(out / (plot.name + ".svg"), picture(plot));
    write_file_atomically(out / kStudyJson, study_json(plan, results, machine).dump(2) + "\n");
    write_file_atomically(out / kStudyHtml, html(report));
    write_file_atomically(out / kStudyMarkdown, markdown(report));
  } catch (const std::system_error& error) {
    throw ConfigError("--out: {}", error.what());
  }
}

}  // namespace shardloom::study
