#include "shardloom/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/tokenizer/char_table.h"
#include "shardloom/tokenizer/utf8.h"

namespace shardloom::tokenizer {
namespace {

// A character before which text can be cut: normalising both parts normalises the whole.
bool is_boundary(const CharInfo& info) {
  return info.combining_class == 0 && !info.may_change_in_nfc;
}

struct Suspect {
  size_t boundary;  // the last boundary before it
  size_t pos;       // text.size() when there is none
};

// The first character from `from` (a boundary) on that may keep the text from being in NFC: the
// quick check of Unicode Standard Annex 15, section 9, where "maybe" counts as no.
Suspect find_suspect(std::string_view text, size_t from) {
  const CharTable& table = CharTable::get();
  uint8_t last_class = 0;
  size_t boundary = from;
  for (size_t pos = from; pos < text.size();) {
    const size_t non_ascii = find_non_ascii(text, pos);
    if (non_ascii > pos) {
      boundary = non_ascii - 1;
      last_class = 0;
      pos = non_ascii;
      continue;
    }
    const CodePoint c = decode_utf8(text, pos);
    const CharInfo& info = table[c.value];
    const bool is_out_of_order = info.combining_class != 0 && last_class > info.combining_class;
    if (info.may_change_in_nfc || is_out_of_order) return {boundary, pos};
    if (info.combining_class == 0) boundary = pos;
    last_class = info.combining_class;
    pos += c.length;
  }
  return {boundary, text.size()};
}

size_t next_boundary(std::string_view text, size_t pos) {
  const CharTable& table = CharTable::get();
  while (pos < text.size()) {
    const CodePoint c = decode_utf8(text, pos);
    if (is_boundary(table[c.value])) break;
    pos += c.length;
  }
  return pos;
}

constexpr auto kForm = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

using CodePoints = std::vector<utf8proc_int32_t>;

CodePoints decompose(std::string_view text) {
  constexpr utf8proc_ssize_t kMost = 8;  // canonical decompositions have 4 at most
  CodePoints points;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = decode_utf8(text, pos);
    pos += c.length;
    utf8proc_int32_t parts[kMost];
    int last_boundary = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value),
                                                       parts, kMost, kForm, &last_boundary);
    SHARDLOOM_CHECK(n >= 0 && n <= kMost, "{}", n < 0 ? utf8proc_errmsg(n) : "long decomposition");
    points.insert(points.end(), parts, parts + n);
  }
  return points;
}

// utf8proc_map() orders marks by swapping neighbours, which takes days for a line of nothing else.
void order_marks(CodePoints& points) {
  const auto mark_class = [&table = CharTable::get()](utf8proc_int32_t c) {
    return table[static_cast<char32_t>(c)].combining_class;
  };
  const auto is_starter = [&](utf8proc_int32_t c) { return mark_class(c) == 0; };
  for (auto first = points.begin(); first != points.end();) {
    first = std::find_if_not(first, points.end(), is_starter);
    const auto last = std::find_if(first, points.end(), is_starter);
    std::stable_sort(first, last, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return mark_class(a) < mark_class(b);
    });
    first = last;
  }
}

void append_nfc(std::string_view text, std::string& out) {
  CodePoints points = decompose(text);
  order_marks(points);
  const utf8proc_ssize_t length =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kForm);
  SHARDLOOM_CHECK(length >= 0, "{}", utf8proc_errmsg(length));
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_utf8(static_cast<char32_t>(points[static_cast<size_t>(i)]), out);
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  Suspect suspect = find_suspect(text, 0);
  if (suspect.pos == text.size()) return text;
  buffer.clear();
  size_t done = 0;
  while (suspect.pos < text.size()) {
    const size_t end = next_boundary(text, suspect.pos);
    buffer.append(text, done, suspect.boundary - done);
    append_nfc(text.substr(suspect.boundary, end - suspect.boundary), buffer);
    done = end;
    suspect = find_suspect(text, done);
  }
  buffer.append(text, done);
  return buffer;
}

}  // namespace shardloom::tokenizer
