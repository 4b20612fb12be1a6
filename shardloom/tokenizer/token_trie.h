// Finds the strings of a fixed set that begin at a place in a text. A double array: one 4-byte unit
// a node, child of node n by byte c at base(n) ^ c; bases are distinct, so that the label alone
// tells whether a unit is a child.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace shardloom::tokenizer {

class TokenTrie {
 public:
  // Strings that are not empty and differ from each other, with their ids (0 or more).
  using Entry = std::pair<std::string_view, int32_t>;

  // Throws DataError when the set is too large for the array (millions of tokens).
  explicit TokenTrie(std::vector<Entry> entries);

  struct Match {
    int32_t id = -1;
    size_t length = 0;
  };

  // The longest string that `text` begins with; id -1 when there is none.
  Match longest(std::string_view text) const {
    uint32_t unit = units_[kRoot];
    uint32_t found = kRoot;
    size_t length = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t node = child(unit, static_cast<unsigned char>(text[i]));
      if (node == kRoot) break;
      unit = units_[node];
      if ((unit & kHasId) != 0) {
        found = node;
        length = i + 1;
      }
    }
    return {found == kRoot ? -1 : ids_[found], length};
  }

  // Calls visit(id, length) for each string that `text` begins with, shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    uint32_t unit = units_[kRoot];
    for (size_t length = 1; length <= text.size(); ++length) {
      const uint32_t node = child(unit, static_cast<unsigned char>(text[length - 1]));
      if (node == kRoot) return;
      unit = units_[node];
      if ((unit & kHasId) != 0) visit(ids_[node], length);
    }
  }

 private:
  friend class TrieBuilder;

  // A unit: base << 10 | has id << 9 | label, where a used label has its bit 8 set.
  static constexpr uint32_t kBaseShift = 10;
  static constexpr uint32_t kHasId = 1u << 9;
  static constexpr uint32_t kUsedLabel = 1u << 8;
  static constexpr uint32_t kLabelMask = kUsedLabel | 0xFF;
  static constexpr uint32_t kRoot =
      0;  // the first 256 units hold nothing else: base 0 of a leaf finds no child

  // The node below `unit` by `byte`, or kRoot when there is none.
  uint32_t child(uint32_t unit, unsigned char byte) const {
    const uint32_t node = (unit >> kBaseShift) ^ byte;
    return (units_[node] & kLabelMask) == (kUsedLabel | byte) ? node : kRoot;
  }

  std::vector<uint32_t> units_;
  std::vector<int32_t> ids_;
};

}  // namespace shardloom::tokenizer
