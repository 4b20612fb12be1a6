// `shardloom compare`.
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/log.h"
#include "shardloom/cli/command.h"
#include "shardloom/study/report.h"
#include "shardloom/study/text.h"

namespace shardloom::cli {
namespace {

constexpr const char* kExample =
    "Examples:\n"
    "  shardloom compare base.log candidate.log\n"
    "  shardloom compare out/none/metrics.jsonl out/ep2/metrics.jsonl --html out/ep2.html\n"
    "Error of a step: |candidate - base| / |candidate|. Ends with 3 when a loss is not finite.";

struct Options {
  std::string base;
  std::string candidate;
  std::string window = "100:200";
  std::string html;
  bool as_json = false;
};

void check_html_path(const Options& options) {
  for (const std::string& log : {options.base, options.candidate}) {
    std::error_code ignored;
    if (std::filesystem::equivalent(options.html, log, ignored)) {
      throw ConfigError("--html {}: this is a log that is compared; name another file",
                        options.html);
    }
  }
}

void write_html(const Options& options, const study::ComparedRuns& runs) {
  try {
    write_file_atomically(options.html, study::report_html(runs));
  } catch (const std::system_error& error) {
    throw ConfigError("--html: {}", error.what());
  }
}

study::RunLog read(const std::string& path) {
  study::RunLog log = study::read_run_log(path);
  for (const std::string& warning : log.warnings) log::warn("{}", warning);
  return log;
}

int compare(const Options& options) {
  const study::Window window = study::parse_window(options.window);
  if (!options.html.empty()) check_html_path(options);
  study::RunLog base = read(options.base);
  study::RunLog candidate = read(options.candidate);
  const study::ComparedRuns runs =
      study::compare_runs(std::move(base), std::move(candidate), window);
  std::cout << (options.as_json ? study::report_json(runs) : study::report_text(runs))
            << std::flush;
  if (!options.html.empty()) write_html(options, runs);
  if (runs.comparison.ok()) return static_cast<int>(ExitCode::kOk);
  throw DataError(
      "no error between the runs is defined: losses are not finite at iteration {}. Find out why "
      "that run went wrong there, or compare logs that end before.",
      study::ranges_text(runs.comparison.not_finite));
}

}  // namespace

void add_compare_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("compare", "Compare losses, step times and memory of two runs");
  auto options = std::make_shared<Options>();
  command
      ->add_option("base", options->base, "Console log or metrics.jsonl of the run to compare with")
      ->required();
  command->add_option("candidate", options->candidate, "The same of the other run")->required();
  command
      ->add_option("--window", options->window,
                   "First and last iteration of the mean step time, both included")
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "Print JSON");
  command->add_option("--html", options->html, "Also write a page with charts into this file");
  command->footer(kExample);
  command->callback([options, &action] { action = [options] { return compare(*options); }; });
}

}  // namespace shardloom::cli
