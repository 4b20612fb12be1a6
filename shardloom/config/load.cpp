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
  problems.throw_if_any();
  loaded.warnings = problems.warnings();
  return loaded;
}

LoadedConfig load_train_config(const std::filesystem::path& path,
                               const std::vector<std::string>& overrides,
                               FeatureCheck features) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    throw ConfigError("cannot read the configuration: {}", error.what());
  }
  return parse_train_config(text, path.string(), overrides, features);
}

}  // namespace shardloom::config
