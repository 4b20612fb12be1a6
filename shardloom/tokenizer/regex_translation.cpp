#include "shardloom/tokenizer/regex_translation.h"

#include "shardloom/base/error.h"

namespace shardloom::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
// Escapes with one meaning in both engines, besides escaped punctuation, \s, \S and \p.
constexpr std::string_view kCommonEscapes = "rntfvdD0";

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& place)
      : pattern_(pattern), place_(place) {}

  std::string run() {
    while (pos_ < pattern_.size()) {
      const char c = pattern_[pos_];
      if (c == '\\') {
        escape();
      } else if (in_set_) {
        set_member(c);
      } else {
        plain(c);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    throw DataError("{}: the regex construct \"{}\" at offset {} of {} is not supported", place_,
                    construct, pos_, pattern_);
  }

  void copy(size_t count) {
    out_ += pattern_.substr(pos_, count);
    pos_ += count;
  }

  void escape() {
    if (pos_ + 1 == pattern_.size()) refuse("\\");
    const char c = pattern_[pos_ + 1];
    const bool is_ascii_punctuation = (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
                                      (c >= '[' && c <= '`') || (c >= '{' && c <= '~') || c == ' ';
    if (c == 's' || c == 'S') {
      const std::string_view members = c == 's' ? kSpaces : kNotSpaces;
      out_ += in_set_ ? std::string(members) : fmt::format("[{}]", members);
      pos_ += 2;
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (is_ascii_punctuation || kCommonEscapes.find(c) != std::string_view::npos) {
      copy(2);
    } else {
      refuse(pattern_.substr(pos_, 2));
    }
  }

  // \p{L}, \p{Lu}, \p{^L}: general categories only; PCRE2 means script extensions by \p{Han}.
  void property() {
    const size_t end = pattern_.find('}', pos_);
    const bool has_braces = pattern_.substr(pos_ + 2, 1) == "{" && end != std::string_view::npos;
    if (!has_braces) refuse(pattern_.substr(pos_, 3));
    std::string_view name = pattern_.substr(pos_ + 3, end - pos_ - 3);
    if (name.substr(0, 1) == "^") name.remove_prefix(1);
    if (name.empty() || name.size() > 2) refuse(pattern_.substr(pos_, end - pos_ + 1));
    copy(end - pos_ + 1);
  }

  void set_member(char c) {
    if (c == '[') refuse("[ within [...]");
    if (pattern_.substr(pos_, 2) == "&&") refuse("&&");
    if (c == ']') in_set_ = false;
    copy(1);
  }

  // Other options and named groups differ, such as (?m).
  void check_group() const {
    const std::string_view kind = pattern_.substr(pos_ + 2);
    for (const std::string_view known : {":", "i:", "=", "!", "<=", "<!", ">"}) {
      if (kind.substr(0, known.size()) == known) return;
    }
    refuse(pattern_.substr(pos_, 4));
  }

  void plain(char c) {
    if (c == '^' || c == '$') refuse(pattern_.substr(pos_, 1));
    if (pattern_.substr(pos_, 2) == "}+") refuse("}+");  // possessive in PCRE2 only
    if (pattern_.substr(pos_, 2) == "(?") check_group();
    in_set_ = c == '[';
    copy(in_set_ && pattern_.substr(pos_, 2) == "[^" ? 2 : 1);
  }

  std::string_view pattern_;
  const std::string& place_;
  size_t pos_ = 0;
  bool in_set_ = false;
  std::string out_;
};

}  // namespace

std::string translate_to_pcre2(std::string_view pattern, const std::string& place) {
  return Translator(pattern, place).run();
}

}  // namespace shardloom::tokenizer
