#include "shardloom/tokenizer/byte_map.h"

#include <array>
#include <cstdint>

#include "shardloom/tokenizer/utf8.h"

namespace shardloom::tokenizer {
namespace {

constexpr int kAlphabetEnd = 0x144;

struct ByteMap {
  std::array<char32_t, 256> code_point{};
  std::array<int16_t, kAlphabetEnd> byte{};
};

constexpr bool prints(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr ByteMap make_byte_map() {
  ByteMap map;
  for (auto& byte : map.byte) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t code_point = prints(byte) ? static_cast<char32_t>(byte) : next++;
    map.code_point[byte] = code_point;
    map.byte[code_point] = static_cast<int16_t>(byte);
  }
  return map;
}

constexpr ByteMap kByteMap = make_byte_map();

}  // namespace

std::string printable_byte(unsigned char byte) {
  std::string text;
  append_utf8(kByteMap.code_point[byte], text);
  return text;
}

std::optional<std::string> bytes_of_printable(std::string_view printable) {
  std::string bytes;
  for (size_t pos = 0; pos < printable.size();) {
    const CodePoint c = decode_utf8(printable, pos);
    if (c.value >= kAlphabetEnd || kByteMap.byte[c.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteMap.byte[c.value]);
    pos += c.length;
  }
  return bytes;
}

}  // namespace shardloom::tokenizer
