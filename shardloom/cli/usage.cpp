#include "shardloom/cli/usage.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string_view>
#include <vector>

#include "shardloom/base/strings.h"

namespace shardloom::cli {
namespace {

constexpr int64_t kMostProcesses = 1'000'000;

const CLI::App* subcommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return fmt::format("there is no command \"{}\"{}; commands: {}", word, did_you_mean(word, names),
                     join(names, ", "));
}

// The same thing has another name in another command.
std::string other_name(const std::string& option) {
  static const std::map<std::string, std::string> names = {
      {"--nproc", "--world"}, {"--world", "--nproc"}, {"--nproc-per-node", "--nproc"}};
  const auto it = names.find(option);
  return it == names.end() ? "" : it->second;
}

std::string unknown_option(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (name.find('.') != std::string::npos) {
    return fmt::format("{}: settings are overridden without dashes, as in training.lr=1e-4", word);
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  const std::string other = other_name(name);
  return fmt::format(
      "{} has no option {}{}", command.get_name(), name,
      contains(names, other) ? fmt::format("; here it is {}", other) : did_you_mean(name, names));
}

bool has_option(const CLI::App& command, const std::string& word) {
  return command.get_option_no_throw(word.substr(0, word.find('='))) != nullptr;
}

}  // namespace

CLI::Validator at_least_one() {
  const auto check = [](std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= 1 && value <= kMostProcesses) return "";
    return fmt::format("must be a whole number from 1 to {}, got {}", kMostProcesses, text);
  };
  return {check, "", "at_least_one"};
}

std::string usage_hint(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;
    if (word.starts_with("--")) {
      if (!has_option(*command, word)) return unknown_option(*command, word);
    } else if (const CLI::App* next = subcommand(*command, word)) {
      command = next;
    } else if (!command->get_subcommands(nullptr).empty()) {
      return unknown_command(*command, word);
    }
  }
  return "";
}

}  // namespace shardloom::cli
