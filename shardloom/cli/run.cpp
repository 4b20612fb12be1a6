#include "shardloom/cli/run.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/cli/command.h"
#include "shardloom/cli/usage.h"
#include "shardloom/trainer/rank.h"

namespace shardloom::cli {

namespace {

bool is_mm_convert(const char* program) {
  return std::filesystem::path(program).filename() == kMmConvertName;
}

void add_commands(CLI::App& app, Action& action) {
  add_train_command(app, action);
  add_launch_command(app, action);
  add_check_command(app, action);
  add_data_command(app, action);
  add_tokenize_command(app, action);
  add_inspect_command(app, action);
  add_compare_command(app, action);
  add_study_command(app, action);
  add_convert_command(app, action);
}

void add_footer(CLI::App& app) {
  app.footer(
      "Example:\n"
      "  shardloom check examples/tiny/train.yaml && shardloom train examples/tiny/train.yaml\n"
      "Exit codes: 0 done, 2 configuration, 3 data, 4 checkpoint, 5 distributed, 130 interrupted, "
      "70 anything else.");
}

// A result that did not reach its file is no success. For runs the console is a by-product.
int with_output_written(int code) {
  errno = 0;
  std::cout.flush();
  const std::string cause = errno == 0 ? "" : fmt::format(": {}", std::strerror(errno));
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (written || code != static_cast<int>(ExitCode::kOk)) return code;
  log::error("cannot write to the standard output{}; what was told could not be written whole",
             cause);
  return static_cast<int>(ExitCode::kInternal);
}

}  // namespace

int run(int argc, const char* const* argv) {
  const bool converts = argc > 0 && is_mm_convert(argv[0]);
  CLI::App app(converts ? "mm-convert changes the format of weights (see also shardloom convert)."
                        : "shardloom fine-tunes InternVL3.5 from one YAML file.",
               converts ? kMmConvertName : "shardloom");
  app.require_subcommand(1);
  app.set_version_flag("--version", SHARDLOOM_VERSION);
  Action action;
  (converts ? add_mm_convert_commands : add_commands)(app, action);
  if (!converts) add_footer(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    const std::string hint = is_help ? "" : usage_hint(app, argc, argv);
    if (hint.empty()) {
      app.exit(error);
    } else {
      fmt::print(stderr, "{}\nRun with --help for more information.\n", hint);
    }
    return static_cast<int>(is_help ? ExitCode::kOk : ExitCode::kConfig);
  }
  const bool trains = !converts && (app.got_subcommand("train") || app.got_subcommand("launch"));
  const int code = trainer::exit_code_of(action);
  return trains ? code : with_output_written(code);
}

}  // namespace shardloom::cli
