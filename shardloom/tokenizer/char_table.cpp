#include "shardloom/tokenizer/char_table.h"

#include <utf8proc.h>

namespace shardloom::tokenizer {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

constexpr Range kNewLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
    {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389},
    {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
    {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA},
    {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
constexpr Range kNewNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};

constexpr char32_t kSurrogates = 0xD800;
constexpr char32_t kSurrogatesEnd = 0xE000;
// Planes 4 to 13 are unassigned, 15 and 16 private: nothing there needs an entry.
constexpr char32_t kPlane4 = 0x40000;

CharClass class_of(char32_t c) {
  if (c == '\r' || c == '\n') return CharClass::kNewline;
  if (is_white_space(c)) return CharClass::kSpace;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) {
    return CharClass::kLetter;
  }
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) {
    return CharClass::kNumber;
  }
  return CharClass::kOther;
}

// Canonical decomposition; `c` itself when there is none.
std::vector<utf8proc_int32_t> decompose(char32_t c) {
  std::vector<utf8proc_int32_t> parts(32);
  int last_boundary = 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &last_boundary);
  parts.resize(static_cast<size_t>(count));
  return parts;
}

// Whether NFC of a decomposition is `c` again. utf8proc's comp_exclusion does not tell: it leaves
// out U+0344 and others that begin with a mark, and U+1FD3 and others that are the same as another
// composed character.
bool composes_back(std::vector<utf8proc_int32_t> parts, char32_t c) {
  const auto count =
      utf8proc_normalize_utf32(parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
}

}  // namespace

CharTable::CharTable() : infos_(kPageSize) {
  auto entry = [&](char32_t c) -> CharInfo& {
    uint16_t& page = pages_[c >> kPageBits];
    if (page == 0) {
      page = static_cast<uint16_t>(infos_.size() >> kPageBits);
      infos_.resize(infos_.size() + kPageSize);
    }
    return infos_[page << kPageBits | (c & (kPageSize - 1))];
  };
  for (char32_t c = 0; c < kPlane4; ++c) {
    if (c >= kSurrogates && c < kSurrogatesEnd) continue;
    const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    const CharClass char_class = class_of(c);
    if (char_class != CharClass::kOther) entry(c).char_class = char_class;
    if (property->combining_class != 0) {
      entry(c).combining_class = static_cast<uint8_t>(property->combining_class);
    }
    const auto parts = decompose(c);
    if (parts.size() == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) continue;
    // Whatever follows the first code point of a decomposition may combine with what stands before
    // it.
    for (size_t i = 1; i < parts.size(); ++i) {
      entry(static_cast<char32_t>(parts[i])).may_change_in_nfc = true;
    }
    if (!composes_back(parts, c)) entry(c).may_change_in_nfc = true;
  }
  for (const Range& range : kNewLetters) {
    for (char32_t c = range.first; c <= range.last; ++c) entry(c).char_class = CharClass::kLetter;
  }
  for (const Range& range : kNewNumbers) {
    for (char32_t c = range.first; c <= range.last; ++c) entry(c).char_class = CharClass::kNumber;
  }
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

}  // namespace shardloom::tokenizer
