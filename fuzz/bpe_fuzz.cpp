// Any bytes, made valid UTF-8, through the tiny tokenizer and back: the text comes back in NFC, and
// no added token is lost.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardloom/tokenizer/nfc.h"
#include "shardloom/tokenizer/tokenizer.h"
#include "shardloom/tokenizer/utf8.h"

using shardloom::tokenizer::Tokenizer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // scripts/fuzz.sh runs this in the root of the repository.
  static const Tokenizer tokenizer = Tokenizer::from_folder("examples/tiny/model");
  static const std::vector<int32_t> all_added = [] {
    std::vector<int32_t> ids;
    for (const auto& token : tokenizer.added_tokens()) ids.push_back(token.id);
    return ids;
  }();
  const std::string text = shardloom::tokenizer::replace_invalid_utf8(
      std::string(reinterpret_cast<const char*>(data), size));

  std::string buffer;
  const std::vector<int32_t> plain = tokenizer.encode_with_plain(text, all_added);
  if (tokenizer.decode(plain) != shardloom::tokenizer::to_nfc(text, buffer)) __builtin_trap();

  // Pieces between added tokens are normalised one by one, so that only their decoded forms can be
  // compared.
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const std::string once = tokenizer.decode(ids);
  if (tokenizer.decode(tokenizer.encode(once)) != once) __builtin_trap();
  return 0;
}
