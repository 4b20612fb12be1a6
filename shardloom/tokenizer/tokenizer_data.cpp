#include "shardloom/tokenizer/tokenizer_data.h"

#include <algorithm>
#include <unordered_set>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/tokenizer/byte_map.h"

namespace shardloom::tokenizer {
namespace {

int32_t id_of_part(std::string_view entry,
                   std::string_view role,
                   const std::string& place,
                   const TokenizerData& data) {
  const auto found = data.ids.find(entry);
  if (found != data.ids.end()) return found->second;
  throw DataError(
      "{}: the merge's {} \"{}\" is not in the vocabulary; merges and vocabulary must "
      "come from the same tokenizer",
      place, role, entry);
}

// Throws when an id is given twice or left out.
void check_ids(const TokenizerData& data) {
  std::vector<std::string_view> tokens(data.ids.size());
  int32_t largest = 0;
  for (const auto& [token, id] : data.ids) {
    largest = std::max(largest, id);
    if (id >= static_cast<int32_t>(tokens.size())) continue;
    if (!tokens[id].empty()) {
      throw DataError("{}: id {} is given to both \"{}\" and \"{}\"", data.place, id,
                      std::min<std::string_view>(tokens[id], token),
                      std::max<std::string_view>(tokens[id], token));
    }
    tokens[id] = token;
  }
  const auto missing = std::find(tokens.begin(), tokens.end(), std::string_view());
  if (missing != tokens.end()) {
    throw DataError("{}: no token has id {}, though ids go up to {}; is the file complete?",
                    data.place, missing - tokens.begin(), largest);
  }
}

// Bytes of the tokens by id.
std::vector<std::string> bytes_by_id(const TokenizerData& data) {
  std::vector<std::string> vocabulary(data.ids.size());
  for (const auto& [entry, id] : data.ids) {
    auto bytes = bytes_of_printable(entry);
    const bool is_added = !bytes && std::any_of(data.added_tokens.begin(), data.added_tokens.end(),
                                                [&, text = entry](const AddedTokenRule& rule) {
                                                  return rule.token.content == text;
                                                });
    if (!bytes && !is_added) {
      throw DataError("{}: token \"{}\" (id {}) is not written in the alphabet of byte-level BPE",
                      data.place, entry, id);
    }
    vocabulary[id] = std::move(bytes).value_or("");
  }
  return vocabulary;
}

void check_bytes(const TokenizerData& data) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string printable = printable_byte(static_cast<unsigned char>(byte));
    if (data.ids.count(printable) != 0) continue;
    throw DataError("{}: byte 0x{:02X} (\"{}\") has no token; this is not a byte-level vocabulary",
                    data.place, byte, printable);
  }
}

// Returns the ids that are new.
std::vector<int32_t> add_tokens_to_ids(TokenizerData& data) {
  std::vector<int32_t> new_ids;
  std::unordered_set<std::string_view> seen;
  for (const AddedTokenRule& rule : data.added_tokens) {
    const auto& [content, id, special] = rule.token;
    if (!seen.insert(content).second) {
      throw DataError("{}: added token \"{}\" is given twice", data.place, content);
    }
    const auto [entry, is_new] = data.ids.emplace(content, id);
    if (!is_new && entry->second != id) {
      throw DataError("{}: added token \"{}\" has id {}, but its text has id {} already",
                      data.place, content, id, entry->second);
    }
    if (is_new) new_ids.push_back(id);
  }
  return new_ids;
}

}  // namespace

Json read_tokenizer_file(const std::filesystem::path& file) {
  std::string foreign;
  try {
    foreign = describe_foreign_content(MappedFile(file).view());
  } catch (const std::system_error& error) {
    throw DataError("{}", error.what());
  }
  if (!foreign.empty()) throw DataError("{}: expected JSON, found {}", file.string(), foreign);
  return read_json_file(file, ExitCode::kData);
}

int32_t checked_id(int64_t id, std::string_view token, const std::string& place) {
  if (id < 0 || id >= INT32_MAX) {
    throw DataError("{}: id {} of token \"{}\" is out of range", place, id, token);
  }
  return static_cast<int32_t>(id);
}

void add_vocabulary(const Json& vocabulary, TokenizerData& data) {
  if (!vocabulary.is_object() || vocabulary.empty()) {
    throw DataError("{}: expected a vocabulary, an object of tokens and their ids", data.place);
  }
  data.ids.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_integer()) {
      throw DataError("{}: the id of token \"{}\" is {}, not a whole number", data.place, token,
                      id.dump());
    }
    if (token.empty()) throw DataError("{}: token {} is empty", data.place, id.dump());
    data.ids.emplace(token, checked_id(id.get<int64_t>(), token, data.place));
  }
}

void add_merge(std::string_view left,
               std::string_view right,
               const std::string& place,
               TokenizerData& data) {
  data.merges.push_back({id_of_part(left, "left part", place, data),
                         id_of_part(right, "right part", place, data),
                         id_of_part(std::string(left).append(right), "product", place, data)});
}

void add_token(const Json& rule, int64_t id, TokenizerData& data) {
  const bool has_content = rule.is_object() && rule.contains("content") &&
                           rule["content"].is_string() && rule["content"] != "";
  if (!has_content) {
    throw DataError("{}: added token {} has no \"content\"", data.place, id);
  }
  AddedTokenRule added;
  added.token.content = rule["content"].get<std::string>();
  added.token.id = checked_id(id, added.token.content, data.place);
  auto flag = [&](const char* name) {
    const auto value = rule.find(name);
    if (value == rule.end()) return false;
    if (value->is_boolean()) return value->get<bool>();
    throw DataError("{}: \"{}\" of added token \"{}\" is {}, not true or false", data.place, name,
                    added.token.content, value->dump());
  };
  for (const char* name : {"lstrip", "rstrip", "single_word"}) {
    if (flag(name)) {
      throw DataError("{}: added token \"{}\" has \"{}\": true, which is not supported", data.place,
                      added.token.content, name);
    }
  }
  added.token.special = flag("special");
  added.normalized = flag("normalized");
  data.added_tokens.push_back(std::move(added));
}

void finish(TokenizerData& data) {
  check_bytes(data);
  const std::vector<int32_t> new_ids = add_tokens_to_ids(data);
  check_ids(data);
  data.vocabulary = bytes_by_id(data);
  for (const int32_t id : new_ids) data.vocabulary[id].clear();
}

TokenizerData read_tokenizer_data(const std::filesystem::path& folder) {
  const auto json = folder / "tokenizer.json";
  TokenizerData data =
      std::filesystem::exists(json) ? read_tokenizer_json(json) : read_vocab_and_merges(folder);
  finish(data);
  return data;
}

}  // namespace shardloom::tokenizer
