// What the tokenizer needs to know about a code point, from utf8proc (Unicode 15.0) plus the
// letters and numbers that Unicode 15.1 and 16.0 added, so that the classes are those of the
// `tokenizers` package 0.21 to 0.23.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace shardloom::tokenizer {

enum class CharClass : uint8_t {
  kOther,    // punctuation, symbols, marks, controls, unassigned
  kLetter,   // \p{L}
  kNumber,   // \p{N}
  kSpace,    // \s without the two below
  kNewline,  // \r and \n
};

struct CharInfo {
  CharClass char_class = CharClass::kOther;
  uint8_t combining_class = 0;
  bool may_change_in_nfc = false;  // NFC_Quick_Check is not "yes"
};

class CharTable {
 public:
  // The one table, built on first use.
  static const CharTable& get();

  const CharInfo& operator[](char32_t code_point) const {
    return infos_[pages_[code_point >> kPageBits] << kPageBits | (code_point & (kPageSize - 1))];
  }

 private:
  static constexpr int kPageBits = 8;
  static constexpr uint32_t kPageSize = 1u << kPageBits;
  static constexpr uint32_t kCodePoints = 0x110000;

  CharTable();

  // Page 0 of infos_ is "kOther, nothing special".
  std::array<uint16_t, (kCodePoints >> kPageBits)> pages_{};
  std::vector<CharInfo> infos_;
};

// \s of the `tokenizers` package: U+0085 is white space; U+180E, U+200B and U+FEFF are not.
constexpr bool is_white_space(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace shardloom::tokenizer
