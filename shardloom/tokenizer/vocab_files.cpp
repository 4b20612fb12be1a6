// vocab.json, merges.txt and the added tokens of the "slow" tokenizers of transformers.
#include <charconv>
#include <set>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/tokenizer/splitter.h"
#include "shardloom/tokenizer/tokenizer_data.h"

namespace shardloom::tokenizer {
namespace {

using std::filesystem::exists;
using std::filesystem::path;

void check_files(const path& folder) {
  auto require = [&](const char* name) {
    if (exists(folder / name)) return;
    throw DataError(
        "{}: no {}; a tokenizer needs tokenizer.json, or vocab.json and merges.txt with "
        "tokenizer_config.json or added_tokens.json",
        folder.string(), name);
  };
  if (!exists(folder / "vocab.json") && !exists(folder / "merges.txt")) require("tokenizer.json");
  require("vocab.json");
  require("merges.txt");
}

// One merge a line, "left right", under a line "#version: ...".
void read_merges(const path& file, TokenizerData& data) {
  const MappedFile content(file);
  std::string_view rest = content.view();
  if (const std::string foreign = describe_foreign_content(rest); !foreign.empty()) {
    throw DataError("{}: expected merges, found {}", file.string(), foreign);
  }
  for (int line_number = 1; !rest.empty(); ++line_number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.substr(0, 8) == "#version") continue;
    const std::string place = fmt::format("{}:{}", file.string(), line_number);
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
      throw DataError("{}: expected two tokens with a blank between, found \"{}\"", place, line);
    }
    add_merge(line.substr(0, blank), line.substr(blank + 1), place, data);
  }
}

// {"151643": {"content": "<|endoftext|>", ...}, ...}
void read_added_tokens_decoder(const Json& decoder, TokenizerData& data) {
  if (!decoder.is_object()) {
    throw DataError("{}: added_tokens_decoder is not an object", data.place);
  }
  for (const auto& [key, rule] : decoder.items()) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      throw DataError("{}: \"{}\" in added_tokens_decoder is not an id", data.place, key);
    }
    add_token(rule, id, data);
  }
}

// Texts of the special tokens; each value is a text, an object with a "content", or a list of
// those.
void collect_special_tokens(const Json& value, std::set<std::string>& texts) {
  if (value.is_string()) {
    texts.insert(value.get<std::string>());
  } else if (value.is_object() && value.contains("content")) {
    collect_special_tokens(value["content"], texts);
  } else if (value.is_structured()) {
    for (const Json& member : value) collect_special_tokens(member, texts);
  }
}

// {"<|endoftext|>": 151643, ...}; which of them are special stands in special_tokens_map.json.
void read_added_tokens_json(const path& folder, TokenizerData& data) {
  std::set<std::string> special;
  const path map = folder / "special_tokens_map.json";
  if (exists(map)) collect_special_tokens(read_tokenizer_file(map), special);
  const path file = folder / "added_tokens.json";
  const Json added = read_tokenizer_file(file);
  if (!added.is_object()) throw DataError("{}: expected an object", file.string());
  for (const auto& [content, id] : added.items()) {
    if (!id.is_number_integer()) {
      throw DataError("{}: the id of \"{}\" is {}", file.string(), content, id.dump());
    }
    const Json rule = {{"content", content}, {"special", special.count(content) > 0}};
    add_token(rule, id.get<int64_t>(), data);
  }
}

void check_class(const Json& config, const std::string& place) {
  if (!config.is_object()) throw DataError("{}: expected an object", place);
  const Json name = config.value("tokenizer_class", Json("Qwen2Tokenizer"));
  if (!name.is_string()) {
    throw DataError("{}: tokenizer_class {} is not a text", place, name.dump());
  }
  if (name != "Qwen2Tokenizer" && name != "Qwen2TokenizerFast") {
    throw DataError(
        "{}: tokenizer_class {} is not supported without tokenizer.json; save the tokenizer in its "
        "fast form",
        place, name.dump());
  }
}

}  // namespace

TokenizerData read_vocab_and_merges(const path& folder) {
  check_files(folder);
  TokenizerData data;
  data.place = (folder / "vocab.json").string();
  data.pattern = kQwenPattern;
  data.use_nfc = true;
  add_vocabulary(read_tokenizer_file(folder / "vocab.json"), data);
  read_merges(folder / "merges.txt", data);

  const path config_file = folder / "tokenizer_config.json";
  const Json config = exists(config_file) ? read_tokenizer_file(config_file) : Json::object();
  check_class(config, config_file.string());
  if (config.contains("added_tokens_decoder")) {
    data.place = config_file.string();
    read_added_tokens_decoder(config["added_tokens_decoder"], data);
  } else if (exists(folder / "added_tokens.json")) {
    data.place = (folder / "added_tokens.json").string();
    read_added_tokens_json(folder, data);
  } else {
    throw DataError(
        "{}: no added tokens; tokenizer_config.json (with added_tokens_decoder) or "
        "added_tokens.json is needed",
        folder.string());
  }
  return data;
}

}  // namespace shardloom::tokenizer
