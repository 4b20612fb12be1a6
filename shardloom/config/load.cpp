#include "shardloom/config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/override.h"
#include "shardloom/config/places.h"
#include "shardloom/config/suggest.h"
#include "shardloom/config/validate.h"

namespace shardloom::config {
namespace {

void dump_section(const Section& section,
                  const void* owner,
                  const std::string& path,
                  bool explain,
                  const LoadedConfig& loaded,
                  std::string& out) {
  const std::string indent(path.empty() ? 0 : 2 * (1 + std::count(path.begin(), path.end(), '.')),
                           ' ');
  for (const Field& field : section.fields()) {
    if (field.effect == Effect::kUnused) continue;
    const std::string field_path = join_path(path, field.name);
    const void* nested = field.codec->section_target(field.get(owner));
    if (nested != nullptr) {
      out += fmt::format("{}{}:\n", indent, field.name);
      dump_section(*field.codec->section(), nested, field_path, explain, loaded, out);
      continue;
    }
    out += fmt::format("{}{}: {}", indent, field.name, field.codec->dump(field.get(owner)));
    if (explain) {
      const auto source = loaded.sources.find(field_path);
      out += source == loaded.sources.end() ? "  # default" : "  # " + source->second.str();
    }
    out += '\n';
  }
}

}  // namespace

Place place_in(const Sources& sources, const std::string& path) {
  std::string name = path;
  while (true) {
    if (const auto it = sources.find(name); it != sources.end()) return it->second;
    const size_t end = name.find_last_of(".[");
    if (name.empty()) return {};
    name = end == std::string::npos ? "" : name.substr(0, end);
  }
}

Place LoadedConfig::place(const std::string& path) const { return place_in(sources, path); }

std::string LoadedConfig::dump(bool explain) const {
  std::string out;
  dump_section(train_config_section(), &config, "", explain, *this, out);
  return out;
}

LoadedConfig parse_train_config(std::string_view text,
                                const std::string& origin,
                                const std::vector<std::string>& overrides,
                                FeatureCheck features) {
  Problems problems;
  YamlNode root = parse_yaml(text, origin, problems);
  if (root.kind == YamlNode::Kind::kNull)
    throw ConfigError("{}: the configuration is empty", origin);
  apply_overrides(root, overrides, problems);

  LoadedConfig loaded;
  loaded.sources[""] = Place{std::make_shared<const std::string>(origin)};
  ReadContext context{problems, loaded.sources};
  train_config_section().read(root, "", &loaded.config, context);
  validate(loaded, features, problems);
  // Not in validate(): the data of pretrain() may come from its caller.
  if (loaded.config.training.val_interval > 0 && !loaded.config.data.val_dataset_param) {
    problems.warning(loaded.place("training.val_interval"),
                     "training.val_interval has no effect: there is no data.val_dataset_param");
  }
  problems.throw_if_any();
  loaded.warnings = problems.warnings();
  return loaded;
}

namespace {

// Data and weights are easily given in place of a configuration.
constexpr uintmax_t kMaxBytes = 1 << 20;

void check_kind(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    const std::string name = path.string();
    throw ConfigError("cannot read the configuration: {} does not exist{}",
                      std::filesystem::absolute(path, error).string(),
                      name.find('=') == std::string::npos
                          ? ""
                          : "; the configuration stands first, key=value behind it");
  }
  if (std::filesystem::is_directory(status))
    throw ConfigError("cannot read the configuration: {} is a folder", path.string());
  if (!std::filesystem::is_regular_file(status)) {
    throw ConfigError(
        "cannot read the configuration: {} is no file but a pipe or a device; every rank reads the "
        "configuration, so write it into a file",
        path.string());
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMaxBytes) {
    throw ConfigError("{} is {}, too large for a configuration (at most {}); is it another file?",
                      path.string(), human_bytes(size), human_bytes(kMaxBytes));
  }
}

}  // namespace

LoadedConfig load_train_config(const std::filesystem::path& path,
                               const std::vector<std::string>& overrides,
                               FeatureCheck features) {
  check_kind(path);
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    throw ConfigError("cannot read the configuration: {}", error.what());
  }
  return parse_train_config(text, path.string(), overrides, features);
}

}  // namespace shardloom::config
