// What the files of a byte-level BPE tokenizer say, whichever files they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shardloom/base/json.h"
#include "shardloom/tokenizer/bpe.h"
#include "shardloom/tokenizer/tokenizer.h"

namespace shardloom::tokenizer {

// Looks texts up without making a std::string of them.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using IdMap = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

struct AddedTokenRule {
  AddedToken token;
  bool normalized = false;  // looked for in the normalised text, after all others
};

struct TokenizerData {
  std::string place;  // the file to blame in errors
  // Vocabulary entry as the file writes it (printable bytes) -> id. finish() enters the added
  // tokens too.
  IdMap ids;
  std::vector<Merge> merges;
  std::vector<AddedTokenRule> added_tokens;
  std::string pattern;  // regex of the pre-tokenizer
  bool use_nfc = false;
  // Made by finish(): bytes by id, "" for an id of an added token only.
  std::vector<std::string> vocabulary;
};

// Reads the files of a model folder, in the order of preference given in tokenizer.h. Throws
// DataError when a file is missing, broken or asks for what is not supported; when an id is given
// twice or left out; when a byte has no token.
TokenizerData read_tokenizer_data(const std::filesystem::path& folder);

// The two sources of read_tokenizer_data(), before finish().
TokenizerData read_tokenizer_json(const std::filesystem::path& file);
TokenizerData read_vocab_and_merges(const std::filesystem::path& folder);

// --- parts that both sources share ---

// The parsed file. Throws DataError also when it is something else, such as a git-lfs pointer.
Json read_tokenizer_file(const std::filesystem::path& file);

// Enters {"entry": id, ...}.
void add_vocabulary(const Json& vocabulary, TokenizerData& data);

// Appends a merge of two entries of data.ids; `place` begins the error that they or their product
// are unknown.
void add_merge(std::string_view left,
               std::string_view right,
               const std::string& place,
               TokenizerData& data);

// Appends an added token from its JSON object {"content": ..., "special": ..., "lstrip": ...}.
void add_token(const Json& rule, int64_t id, TokenizerData& data);

// An id, checked to be within what int32_t holds.
int32_t checked_id(int64_t id, std::string_view token, const std::string& place);

// Enters the added tokens into data.ids, makes data.vocabulary, checks that both are complete.
void finish(TokenizerData& data);

}  // namespace shardloom::tokenizer
