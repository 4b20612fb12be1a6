#include "shardloom/cli/run.h"

#include <filesystem>

#include "shardloom/base/error.h"
#include "shardloom/cli/command.h"
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return static_cast<int>(is_help ? ExitCode::kOk : ExitCode::kConfig);
  }
  return trainer::exit_code_of(action);
}

}  // namespace shardloom::cli
