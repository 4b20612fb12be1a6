// `shardloom inspect`.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/checkpoint/inspect.h"
#include "shardloom/cli/command.h"

namespace shardloom::cli {
namespace {

constexpr const char* kExample =
    "Examples:\n"
    "  shardloom inspect examples/tiny/model\n"
    "  shardloom inspect out/checkpoints/iter_0002000 --verify\n"
    "Ends with 4 when something is missing or damaged.";

struct Options {
  std::string path;
  bool as_json = false;
  bool verify = false;
};

struct Verification {
  uint64_t checksums = 0;  // items whose CRC was compared
  std::vector<std::string> errors;
};

Verification verify(const std::string& path) {
  Verification result;
  result.checksums = checkpoint::verify_checkpoint(
      path, [&](const std::string&, const std::string& error) { result.errors.push_back(error); });
  return result;
}

void print_json(const checkpoint::Description& description, const Verification* verification) {
  OrderedJson json = OrderedJson::parse(checkpoint::description_json(description));
  if (verification != nullptr) {
    json["verify"] = {{"checksums", verification->checksums}, {"errors", verification->errors}};
  }
  std::cout << json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
}

void print_text(const checkpoint::Description& description, const Verification* verification) {
  std::cout << checkpoint::description_text(description);
  if (verification == nullptr) return;
  if (verification->checksums == 0) {
    std::cout << "verify: headers and sizes are sound; safetensors files carry no checksums\n";
  } else if (verification->errors.empty()) {
    std::cout << fmt::format("verify: all {} checksums are right\n", verification->checksums);
  }
}

int inspect(const Options& options) {
  const checkpoint::Description description = checkpoint::describe_checkpoint(options.path);
  std::unique_ptr<Verification> verification;
  if (options.verify) {
    verification = std::make_unique<Verification>(verify(description.path));
  }
  (options.as_json ? print_json : print_text)(description, verification.get());
  if (verification == nullptr || verification->errors.empty()) {
    return static_cast<int>(ExitCode::kOk);
  }
  std::string text = fmt::format("{}: {} of {} items are damaged", description.path.string(),
                                 verification->errors.size(), verification->checksums);
  for (const std::string& error : verification->errors) text += "\n  " + error;
  throw CheckpointError(text);
}

}  // namespace

void add_inspect_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "inspect", "List the tensors of a safetensors file, a Hugging Face folder or a DCP folder");
  auto options = std::make_shared<Options>();
  command
      ->add_option("path", options->path,
                   "File or folder; the folder of a run stands for its latest checkpoint")
      ->required();
  command->add_flag("--json", options->as_json, "Print JSON");
  command->add_flag("--verify", options->verify, "Read every byte and compare every checksum");
  command->footer(kExample);
  command->callback([options, &action] { action = [options] { return inspect(*options); }; });
}

}  // namespace shardloom::cli
