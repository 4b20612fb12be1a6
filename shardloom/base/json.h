// JSON files with errors that name the file, line and column.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shardloom/base/error.h"

namespace shardloom {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Parses `text`; `code` is the category of the error. Duplicate keys, invalid UTF-8 and trailing
// text are errors.
Json parse_json(std::string_view text, const std::string& place, ExitCode code);
Json read_json_file(const std::filesystem::path& path, ExitCode code);

}  // namespace shardloom
