#include "shardloom/base/json.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <vector>

#include "shardloom/base/files.h"

namespace shardloom {
namespace {

// "place:line:column" of byte `at`.
std::string position(std::string_view text, const std::string& place, size_t at) {
  const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n') + 1;
  const size_t line_start = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const size_t column = line_start == std::string_view::npos ? at + 1 : at - line_start;
  return fmt::format("{}:{}:{}", place, line, column);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& place, ExitCode code) {
  std::vector<std::set<std::string>> keys_of_open_objects;
  std::string duplicate;
  auto callback = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_of_open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_of_open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_of_open_objects.back().insert(key).second && duplicate.empty()) duplicate = key;
    }
    return true;
  };
  // The parser takes a zero byte for the end of the text and would ignore what follows.
  const size_t zero = text.find('\0');
  try {
    Json value = Json::parse(text.begin(), text.end(), callback);
    if (zero != std::string_view::npos) {
      throw Error(code, fmt::format("{}: not valid JSON", position(text, place, zero)));
    }
    if (!duplicate.empty())
      throw Error(code, fmt::format("{}: duplicate JSON key \"{}\"", place, duplicate));
    return value;
  } catch (const Json::parse_error& error) {
    const size_t at = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    throw Error(code, fmt::format("{}: not valid JSON", position(text, place, at)));
  } catch (const Json::out_of_range&) {
    throw Error(code, fmt::format("{}: not valid JSON: a number is too large for a double", place));
  }
}

Json read_json_file(const std::filesystem::path& path, ExitCode code) {
  try {
    const MappedFile file(path);
    return parse_json(file.view(), path.string(), code);
  } catch (const std::system_error& error) {
    throw Error(code, error.what());
  }
}

}  // namespace shardloom
