#include "shardloom/tokenizer/token_trie.h"

#include <algorithm>

#include "shardloom/base/error.h"

namespace shardloom::tokenizer {
namespace {

constexpr uint32_t kBlock = 256;
// A block that so many nodes found no place in is given up; keeps building linear.
constexpr int kMaxMisses = 64;

}  // namespace

class TrieBuilder {
 public:
  TrieBuilder(TokenTrie& trie, std::vector<TokenTrie::Entry> entries)
      : trie_(trie), entries_(std::move(entries)) {
    std::sort(entries_.begin(), entries_.end());
    add_block();  // of the root
    open_blocks_.clear();
    place(TokenTrie::kRoot, 0, entries_.size(), 0);
  }

 private:
  struct Child {
    unsigned char byte;
    size_t first;  // its entries
    size_t last;
  };
  struct Block {
    uint32_t start;
    int misses;
  };

  // Gives `node`, the start of length `depth` of entries [first, last), its id and children.
  void place(uint32_t node, size_t first, size_t last, size_t depth) {
    if (first < last && entries_[first].first.size() == depth) {
      trie_.units_[node] |= TokenTrie::kHasId;
      trie_.ids_[node] = entries_[first].second;
      ++first;
    }
    if (first == last) return;
    std::vector<Child> children;
    for (size_t i = first; i < last; ++i) {
      const auto byte = static_cast<unsigned char>(entries_[i].first[depth]);
      if (children.empty() || children.back().byte != byte) children.push_back({byte, i, i});
      children.back().last = i + 1;
    }
    const uint32_t base = find_base(children);
    trie_.units_[node] |= base << TokenTrie::kBaseShift;
    base_is_used_[base] = true;
    for (const Child& child : children) {
      trie_.units_[base ^ child.byte] = TokenTrie::kUsedLabel | child.byte;
    }
    for (const Child& child : children) {
      place(base ^ child.byte, child.first, child.last, depth + 1);
    }
  }

  bool fits(uint32_t base, const std::vector<Child>& children) const {
    return !base_is_used_[base] && std::all_of(children.begin(), children.end(), [&](Child child) {
      return trie_.units_[base ^ child.byte] == 0;
    });
  }

  uint32_t find_base(const std::vector<Child>& children) {
    for (size_t i = 0; i < open_blocks_.size(); ++i) {
      Block& block = open_blocks_[i];
      for (uint32_t base = block.start; base < block.start + kBlock; ++base) {
        if (fits(base, children)) return base;
      }
      if (++block.misses == kMaxMisses) {
        open_blocks_.erase(open_blocks_.begin() + static_cast<ptrdiff_t>(i));
        --i;
      }
    }
    add_block();
    return open_blocks_.back().start;
  }

  void add_block() {
    const auto start = static_cast<uint32_t>(trie_.units_.size());
    if (start >= 1u << (32 - TokenTrie::kBaseShift)) {
      throw DataError("the vocabulary has too many tokens ({})", entries_.size());
    }
    trie_.units_.resize(start + kBlock, 0);
    trie_.ids_.resize(start + kBlock, -1);
    base_is_used_.resize(start + kBlock, false);
    open_blocks_.push_back({start, 0});
  }

  TokenTrie& trie_;
  std::vector<TokenTrie::Entry> entries_;
  std::vector<bool> base_is_used_;
  std::vector<Block> open_blocks_;
};

TokenTrie::TokenTrie(std::vector<Entry> entries) { TrieBuilder(*this, std::move(entries)); }

}  // namespace shardloom::tokenizer
