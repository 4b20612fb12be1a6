#include "shardloom/tokenizer/added_token_matcher.h"

#include <algorithm>

namespace shardloom::tokenizer {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<TokenTrie::Entry>& tokens) : trie_(tokens) {
  for (const auto& [content, id] : tokens) {
    bool& begins = begins_token_[static_cast<unsigned char>(content.front())];
    if (!begins) first_bytes_ += content.front();
    begins = true;
  }
}

size_t AddedTokenMatcher::next_candidate(std::string_view text, size_t from) const {
  // Mostly all of them begin with "<", which find() looks for with memchr.
  if (first_bytes_.size() <= 1) {
    const size_t at = first_bytes_.empty() ? text.npos : text.find(first_bytes_.front(), from);
    return std::min(at, text.size());
  }
  while (from < text.size() && !begins_token_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

std::optional<AddedTokenMatcher::Found> AddedTokenMatcher::find(
    std::string_view text, size_t from, const std::vector<int32_t>& plain) const {
  for (size_t start = next_candidate(text, from); start < text.size();
       start = next_candidate(text, start + 1)) {
    std::optional<Found> longest;
    trie_.for_each_prefix(text.substr(start), [&](int32_t id, size_t length) {
      const bool is_plain = std::find(plain.begin(), plain.end(), id) != plain.end();
      if (!is_plain) longest = Found{start, start + length, id};
    });
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace shardloom::tokenizer
