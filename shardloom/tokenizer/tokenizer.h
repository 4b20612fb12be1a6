// Byte-level BPE tokenizer of the Qwen2/Qwen3 family (as Hugging Face `tokenizers` computes it).
//
// Files, in this order of preference: tokenizer.json; else vocab.json + merges.txt + the added
// tokens of tokenizer_config.json ("added_tokens_decoder", ids authoritative) or added_tokens.json.
// Text -> added tokens are cut out of the raw text first (leftmost, longest) -> each piece between
// is NFC-normalised, split by the pre-tokenizer regex, mapped to printable bytes and merged by
// rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::tokenizer {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
};

class Tokenizer {
 public:
  // Reads the tokenizer files of a model folder. Throws DataError that names the missing or broken
  // file.
  static Tokenizer from_folder(const std::filesystem::path& folder);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`; throws DataError when it is not valid UTF-8. Added tokens written in the text
  // become their ids.
  // Thread-safe: the same object may encode from several threads.
  std::vector<int32_t> encode(std::string_view text) const;

  // As encode(), but the added tokens for which `plain(token)` holds are encoded as ordinary text.
  // `plain` is a list of ids (see id()); the rest of the added tokens become their ids.
  std::vector<int32_t> encode_with_plain(std::string_view text,
                                         const std::vector<int32_t>& plain) const;

  // Text of `ids`; invalid UTF-8 is replaced by U+FFFD. skip_special leaves out the added tokens
  // marked special. Throws DataError for an id that does not exist.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = false) const;

  // Id of one token given as its exact text (an added token such as "<IMG_CONTEXT>", or a
  // vocabulary entry).
  std::optional<int32_t> id(std::string_view token) const;

  // One more than the largest id.
  int32_t size() const;
  const std::vector<AddedToken>& added_tokens() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardloom::tokenizer
