// Ids of the short words met last; most of a text are a few thousand words that come back. Bounded
// (512 KiB), and for one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace shardloom::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWord = 15;  // bytes
  static constexpr size_t kMaxIds = 3;

  struct Entry {
    std::array<uint64_t, 2> key{};  // the bytes of the word, zeros, its length; {0, 0} is free
    std::array<int32_t, kMaxIds> ids{};
    int32_t count = 0;
  };
  static_assert(sizeof(Entry) == 32, "two to a cache line");

  WordCache() : entries_(size_t{1} << kBits) {}

  // The entry for text[pos, pos + length), 0 < length <= kMaxWord; it holds the word when its key
  // is the one given back.
  Entry& slot(std::string_view text, size_t pos, size_t length, std::array<uint64_t, 2>& key) {
    key = key_of(text, pos, length);
    const uint64_t mixed = (key[0] ^ key[1] * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
    return entries_[(mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9u >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 14;

  static std::array<uint64_t, 2> key_of(std::string_view text, size_t pos, size_t length) {
    std::array<uint64_t, 2> key{};
    std::memcpy(key.data(), text.data() + pos, std::min(sizeof(key), text.size() - pos));
    if (length < 8) {
      key = {key[0] & ~(~uint64_t{0} << 8 * length), 0};
    } else {
      key[1] &= ~(~uint64_t{0} << 8 * (length - 8));
    }
    key[1] |= static_cast<uint64_t>(length) << 56;
    return key;
  }

  std::vector<Entry> entries_;
};

}  // namespace shardloom::tokenizer
