// `shardloom data show|check`.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/base/progress.h"
#include "shardloom/cli/command.h"
#include "shardloom/cli/threads.h"
#include "shardloom/config/load.h"
#include "shardloom/data/check.h"
#include "shardloom/data/show.h"

namespace shardloom::cli {
namespace {

constexpr const char* kShowExample =
    "Example:\n  shardloom data show examples/tiny/train.yaml --index 3";
constexpr const char* kCheckExample =
    "Example:\n  shardloom data check examples/tiny/train.yaml "
    "data.dataset_param.max_dynamic_patch=6\n"
    "Ends with 3 when a sample is bad.";

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  int64_t index = 0;
  bool as_json = false;
};

std::unique_ptr<data::Dataset> open_dataset(const Options& options) {
  const config::LoadedConfig loaded = config::load_train_config(options.config, options.overrides);
  for (const auto& warning : loaded.warnings) log::warn("{}", warning);
  const auto& param = loaded.config.data.dataset_param;
  const auto& factory = data::dataset_registry().get(param.dataset_type);
  return factory(param, loaded.config.model.model_name_or_path);
}

void print_json(const OrderedJson& json, int indent) {
  std::cout << json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
}

int show(const Options& options) {
  const auto dataset = open_dataset(options);
  if (options.index < 0 || options.index >= dataset->size()) {
    throw ConfigError("--index {}: the data set has samples 0 to {}", options.index,
                      dataset->size() - 1);
  }
  const data::SampleView view = dataset->view(options.index);
  if (options.as_json) {
    print_json(data::to_json(view), -1);
  } else {
    std::cout << data::to_text(view);
  }
  return static_cast<int>(ExitCode::kOk);
}

int check(const Options& options) {
  const auto dataset = open_dataset(options);
  if (dataset->size() == 0)
    throw DataError("the data set has no samples ({})", dataset->fingerprint());
  ProgressBar bar("checking", dataset->size(), "samples");
  const data::CheckReport report = data::check_dataset(*dataset, num_threads(), [&](int64_t done) {
    if (interrupt_requested()) throw InterruptedError("interrupted after {} samples", done);
    bar.update(done);
  });
  bar.clear();
  if (options.as_json) {
    print_json(data::to_json(report), 2);
  } else {
    std::cout << data::to_text(report);
  }
  return static_cast<int>(report.bad.empty() ? ExitCode::kOk : ExitCode::kData);
}

// What both commands take.
std::shared_ptr<Options> add_options(CLI::App& command, const char* example) {
  auto options = std::make_shared<Options>();
  command.add_option("config", options->config, "Training configuration (YAML)")->required();
  command.add_option("overrides", options->overrides, "Settings as key=value");
  command.add_flag("--json", options->as_json, "Print JSON");
  command.footer(example);
  return options;
}

}  // namespace

void add_data_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("data", "Look at the training data");
  command->require_subcommand(1);
  command->footer("Example:\n  shardloom data check examples/tiny/train.yaml");

  CLI::App* show_command = command->add_subcommand("show", "Print one sample as it is trained");
  const auto show_options = add_options(*show_command, kShowExample);
  show_command->add_option("--index", show_options->index, "Sample, counted from 0")->required();
  show_command->callback(
      [show_options, &action] { action = [show_options] { return show(*show_options); }; });

  CLI::App* check_command =
      command->add_subcommand("check", "Prepare every sample and list the bad ones");
  const auto check_options = add_options(*check_command, kCheckExample);
  check_command->callback(
      [check_options, &action] { action = [check_options] { return check(*check_options); }; });
}

}  // namespace shardloom::cli
