// Reading one file of the Megatron-style path by the table of its struct. JSON is read as the
// subset of YAML that it is, so that faults have a place.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/config/places.h"
#include "shardloom/config/schema_builder.h"

namespace shardloom::config::megatron {

// "cannot read FILE" as a ConfigError that names the flag which gives it.
inline std::string read_document(const std::filesystem::path& path, std::string_view flag) {
  try {
    return read_file(path);
  } catch (const std::system_error& error) {
    throw ConfigError("{}: cannot read the file: {}", flag, error.what());
  }
}

// `text` as YAML in which each character keeps its place. Throws ConfigError where it is not JSON.
std::string json_as_yaml(std::string_view text, const std::string& origin);

// Fills a T and its `sources`; throws ConfigError for a syntax fault, the others go to `problems`.
template <typename T>
T parse_document(std::string_view text, const std::string& origin, Problems& problems) {
  const YamlNode root = parse_yaml(text, origin, problems);
  if (root.kind == YamlNode::Kind::kNull) throw ConfigError("{}: the file is empty", origin);
  T parsed;
  parsed.sources[""] = Place{std::make_shared<const std::string>(origin)};
  ReadContext context{problems, parsed.sources};
  section_of<T>().read(root, "", &parsed, context);
  return parsed;
}

template <typename T>
T parse_json_document(std::string_view text, const std::string& origin, Problems& problems) {
  return parse_document<T>(json_as_yaml(text, origin), origin, problems);
}

}  // namespace shardloom::config::megatron
