// Finds added tokens in a text, leftmost first and the longest of those that begin at the same
// place.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/tokenizer/token_trie.h"

namespace shardloom::tokenizer {

class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(const std::vector<TokenTrie::Entry>& tokens);

  struct Found {
    size_t start;
    size_t end;
    int32_t id;
  };

  // The first token at or after `from`; tokens whose ids are in `plain` are overlooked.
  std::optional<Found> find(std::string_view text,
                            size_t from,
                            const std::vector<int32_t>& plain) const;

  // Cuts `text` into pieces without tokens and tokens; calls on_text(piece), never empty, and
  // on_token(id) in order.
  template <typename OnText, typename OnToken>
  void cut(std::string_view text,
           const std::vector<int32_t>& plain,
           OnText on_text,
           OnToken on_token) const {
    size_t pos = 0;
    while (const auto found = find(text, pos, plain)) {
      if (found->start > pos) on_text(text.substr(pos, found->start - pos));
      on_token(found->id);
      pos = found->end;
    }
    if (pos < text.size()) on_text(text.substr(pos));
  }

 private:
  size_t next_candidate(std::string_view text, size_t from) const;

  TokenTrie trie_;
  std::array<bool, 256> begins_token_{};
  std::string first_bytes_;  // the same as a list
};

}  // namespace shardloom::tokenizer
