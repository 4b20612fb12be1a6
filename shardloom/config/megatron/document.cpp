#include "shardloom/config/megatron/document.h"

#include <algorithm>

#include "shardloom/base/json.h"

namespace shardloom::config::megatron {

std::string json_as_yaml(std::string_view text, const std::string& origin) {
  std::string yaml(text);
  const bool is_blank = yaml.find_first_not_of(" \t\r\n") == std::string::npos;
  if (!is_blank && !Json::accept(yaml)) {
    try {
      parse_json(yaml, origin, ExitCode::kConfig);
    } catch (const Error& error) {
      throw ConfigError(
          "{}; JSON has text in double quotes, one comma between two entries, none after the last, "
          "and no comments",
          error.what());
    }
  }
  // YAML takes no tab in front of a key. In JSON one only stands between tokens.
  std::replace(yaml.begin(), yaml.end(), '\t', ' ');
  return yaml;
}

}  // namespace shardloom::config::megatron
