// Reading and repairing UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardloom::tokenizer {

struct CodePoint {
  char32_t value;
  uint32_t length;  // bytes
};

// The code point at `pos` < text.size() of valid UTF-8.
inline CodePoint decode_utf8(std::string_view text, size_t pos) {
  auto byte = [&](size_t k) { return static_cast<unsigned char>(text[pos + k]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3F),
          4};
}

void append_utf8(char32_t code_point, std::string& out);

// Offset of the first byte at or after `pos` that is not ASCII, or text.size().
size_t find_non_ascii(std::string_view text, size_t pos);

// Offset of the first byte that is not valid UTF-8; as find_invalid_utf8() of base, but fast on
// ASCII.
std::optional<size_t> find_invalid_text(std::string_view text);

// `bytes` with each maximal part of an invalid sequence replaced by one U+FFFD (Unicode 15, 3.9,
// "U+FFFD substitution of maximal subparts"; the same as Python's errors="replace").
std::string replace_invalid_utf8(std::string bytes);

}  // namespace shardloom::tokenizer
