#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "shardloom/base/error.h"
#include "shardloom/tokenizer/regex_translation.h"
#include "shardloom/tokenizer/splitter.h"
#include "shardloom/tokenizer/utf8.h"

namespace shardloom::tokenizer {
namespace {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;

std::string message_of(int error) {
  std::string text(256, '\0');
  const int length =
      pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return text;
}

Code compile(const std::string& pattern, const std::string& place) {
  const std::string translated = translate_to_pcre2(pattern, place);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // what "." leaves out
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          context.get()));
  if (code == nullptr) {
    throw DataError("{}: the pre-tokenizer regex {} is not valid: {}", place, pattern,
                    message_of(error));
  }
  // Where the machine has no JIT, matching interprets the same code.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

class RegexSplitter : public Splitter {
 public:
  RegexSplitter(const std::string& pattern, const std::string& place)
      : place_(place), code_(compile(pattern, place)) {}

  void split(std::string_view text, std::vector<size_t>& ends) const override {
    ends.clear();
    const MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());
    size_t word_start = 0;
    for (size_t pos = 0; pos < text.size();) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), pos, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) throw DataError("{}: regex: {}", place_, message_of(found));
      if (match[0] == match[1]) {
        pos = match[1] < text.size() ? match[1] + decode_utf8(text, match[1]).length : text.size();
        continue;
      }
      if (match[0] > word_start) ends.push_back(match[0]);
      ends.push_back(match[1]);
      word_start = pos = match[1];
    }
    if (word_start < text.size()) ends.push_back(text.size());
  }

 private:
  std::string place_;
  Code code_;
};

}  // namespace

std::unique_ptr<Splitter> make_regex_splitter(const std::string& pattern,
                                              const std::string& place) {
  return std::make_unique<RegexSplitter>(pattern, place);
}

}  // namespace shardloom::tokenizer
