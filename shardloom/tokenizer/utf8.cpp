#include "shardloom/tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

#include "shardloom/base/strings.h"

namespace shardloom::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the longest start of `text` that begins a valid sequence; `text` starts with an invalid
// one.
size_t maximal_subpart(std::string_view text) {
  auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t length = 1;
  while (length < std::min(wanted, text.size()) && byte(length) >= low && byte(length) <= high) {
    ++length;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

void append_utf8(char32_t code_point, std::string& out) {
  auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t find_non_ascii(std::string_view text, size_t pos) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  for (; pos + sizeof(uint64_t) <= text.size(); pos += sizeof(uint64_t)) {
    uint64_t eight;
    std::memcpy(&eight, text.data() + pos, sizeof(eight));
    if ((eight & kHighBits) != 0) break;
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0x80) ++pos;
  return pos;
}

std::optional<size_t> find_invalid_text(std::string_view text) {
  const size_t ascii = find_non_ascii(text, 0);
  if (ascii == text.size()) return std::nullopt;
  const auto invalid = find_invalid_utf8(text.substr(ascii));
  return invalid ? std::optional<size_t>(ascii + *invalid) : std::nullopt;
}

std::string replace_invalid_utf8(std::string bytes) {
  std::string_view rest = bytes;
  auto invalid = find_invalid_text(rest);
  if (!invalid) return bytes;
  std::string out;
  while (invalid) {
    out.append(rest.substr(0, *invalid)).append(kReplacement);
    rest.remove_prefix(*invalid);
    rest.remove_prefix(maximal_subpart(rest));
    invalid = find_invalid_text(rest);
  }
  return out.append(rest);
}

}  // namespace shardloom::tokenizer
