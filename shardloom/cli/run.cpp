#include "shardloom/cli/run.h"

#include <c10/util/Exception.h>

#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/cli/command.h"

namespace shardloom::cli {

int run(int argc, const char* const* argv) {
  CLI::App app("shardloom fine-tunes InternVL3.5 from one YAML file.", "shardloom");
  app.require_subcommand(1);
  app.set_version_flag("--version", SHARDLOOM_VERSION);
  Action action;
  add_train_command(app, action);
  add_launch_command(app, action);
  add_check_command(app, action);
  add_data_command(app, action);
  add_tokenize_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return static_cast<int>(is_help ? ExitCode::kOk : ExitCode::kConfig);
  }
  try {
    return action();
  } catch (const Error& error) {
    log::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    log::error("out of memory. Use a smaller micro_batch_size or cutoff_len, or more processes.");
  } catch (const c10::Error& error) {
    log::error("{}", error.what_without_backtrace());
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
  return static_cast<int>(ExitCode::kInternal);
}

}  // namespace shardloom::cli
