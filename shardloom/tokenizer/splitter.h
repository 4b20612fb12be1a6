// The pre-tokenizer: cuts text into the words that BPE may not cross.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::tokenizer {

class Splitter {
 public:
  virtual ~Splitter() = default;

  // Replaces `ends` by the end offset of each word of `text` (valid UTF-8). The words cover the
  // text without gaps: what the regex does not match is a word of its own, as `tokenizers` does it
  // with the behaviour "Isolated".
  virtual void split(std::string_view text, std::vector<size_t>& ends) const = 0;
};

// The regex of Qwen2, Qwen2.5 and Qwen3.
inline constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The regex of GPT-2, which the pre-tokenizer ByteLevel uses when it has no Split before it.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Hand-written code for exactly kQwenPattern.
std::unique_ptr<Splitter> make_qwen_splitter();

// Any other regex, in the syntax of Oniguruma as far as PCRE2 means the same by it. Throws
// DataError, which begins with `place`, for a regex that is wrong or uses a construct the two
// engines read differently.
std::unique_ptr<Splitter> make_regex_splitter(const std::string& pattern, const std::string& place);

// The faster of the two that is right for `pattern`.
std::unique_ptr<Splitter> make_splitter(const std::string& pattern, const std::string& place);

}  // namespace shardloom::tokenizer
