// parse_record_line: nlohmann's parser with messages that name the byte and the remedy.
#include <optional>
#include <set>

#include "shardloom/base/strings.h"
#include "shardloom/data/jsonl.h"

namespace shardloom::data {
namespace {

// The cause out of "[json.exception...] parse error at line 1, column 9: syntax error while parsing
// value - CAUSE; last read:
// '...'; expected ...", without the text read so far (which may be a megabyte).
std::string cause_of(const Json::exception& error) {
  std::string text = error.what();
  if (const size_t dash = text.find(" - "); dash != std::string::npos) text.erase(0, dash + 3);
  const size_t read = text.find("; last read");
  if (read != std::string::npos) text.erase(read);
  constexpr size_t kLongest = 160;
  if (text.size() > kLongest) text.resize(kLongest);
  return text;
}

std::string remedy_for(const std::string& cause) {
  const bool is_cut = cause.find("end of input") != std::string::npos ||
                      cause.find("missing closing quote") != std::string::npos;
  return is_cut ? "; the line is cut, or a record goes over several lines (it must stand on one)"
                : "";
}

class DuplicateKeys {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(level + 1);
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.at(level).insert(key).second) duplicate_ = key;
    }
    return true;
  }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the open objects, by depth
  std::optional<std::string> duplicate_;
};

}  // namespace

Json parse_record_line(std::string_view line, const std::string& place) {
  if (const auto bad = find_invalid_utf8(line)) {
    throw DataError("{}:{}: invalid UTF-8 (byte 0x{:02X}); save the file as UTF-8", place, *bad + 1,
                    static_cast<uint8_t>(line[*bad]));
  }
  // The parser would take it for the end of the line.
  if (const size_t zero = line.find('\0'); zero != line.npos)
    throw DataError("{}:{}: not valid JSON: a zero byte; is the file damaged?", place, zero + 1);
  DuplicateKeys keys;
  Json record;
  try {
    record = Json::parse(line.begin(), line.end(), std::ref(keys));
  } catch (const Json::parse_error& error) {
    const std::string cause = cause_of(error);
    throw DataError("{}:{}: not valid JSON: {}{}", place, error.byte, cause, remedy_for(cause));
  } catch (const Json::exception& error) {
    throw DataError("{}: not valid JSON: {}", place, cause_of(error));
  }
  if (keys.duplicate()) throw DataError("{}: duplicate key \"{}\"", place, *keys.duplicate());
  if (!record.is_object()) {
    throw DataError("{}: the record is not a JSON object but {} {}", place,
                    record.is_array() ? "an" : "a", record.type_name());
  }
  return record;
}

}  // namespace shardloom::data
