#include "shardloom/tokenizer/bpe.h"

#include <algorithm>

#include "shardloom/base/error.h"

namespace shardloom::tokenizer {

Bpe::Bpe(std::vector<std::string> tokens,
         const std::vector<Merge>& merges,
         const std::string& place)
    : tokens_(std::move(tokens)),
      id_of_byte_(256, -1),
      ranks_(merges.size()),
      origins_(tokens_.size()),
      origins_are_unique_(read_origins(merges, place)),
      trie_([this] {
        std::vector<TokenTrie::Entry> entries;
        for (int32_t id = 0; id < static_cast<int32_t>(tokens_.size()); ++id) {
          if (is_own_result(id)) entries.emplace_back(tokens_[id], id);
        }
        return entries;
      }()) {
  find_shorter();
}

// Returns whether the origins are unique.
bool Bpe::read_origins(const std::vector<Merge>& merges, const std::string& place) {
  for (int32_t id = 0; id < static_cast<int32_t>(tokens_.size()); ++id) {
    if (tokens_[id].size() == 1) id_of_byte_[static_cast<unsigned char>(tokens_[id][0])] = id;
  }
  SHARDLOOM_CHECK(std::count(id_of_byte_.begin(), id_of_byte_.end(), -1) == 0, "bytes not covered");
  bool unique = true;
  auto is_known = [&](int32_t id) { return tokens_[id].size() == 1 || origins_[id].rank >= 0; };
  for (const Merge& merge : merges) {
    const auto rank = static_cast<int32_t>(product_of_rank_.size());
    product_of_rank_.push_back(merge.product);
    if (!ranks_.add(merge.left, merge.right, rank)) {
      throw DataError("{}: the merge of \"{}\" and \"{}\" is given twice", place,
                      tokens_[merge.left], tokens_[merge.right]);
    }
    if (is_known(merge.product) || !is_known(merge.left) || !is_known(merge.right)) unique = false;
    Origin& origin = origins_[merge.product];
    origin.rank = rank;
    origin.left = merge.left;
    origin.right = merge.right;
    int32_t& lowest_as_left = origins_[merge.left].lowest_as_left;
    int32_t& lowest_as_right = origins_[merge.right].lowest_as_right;
    lowest_as_left = std::min(lowest_as_left, rank);
    lowest_as_right = std::min(lowest_as_right, rank);
  }
  return unique;
}

bool Bpe::is_own_result(int32_t id) const {
  const Origin& origin = origins_[id];
  if (tokens_[id].size() <= 1) return !tokens_[id].empty();
  if (origin.rank < 0) return false;
  if (!origins_are_unique_) return merge_by_rank(tokens_[id]) == std::vector<int32_t>{id};
  // Both parts have lower ranks, but one of them may not be its own result.
  return is_own_result(origin.left) && is_own_result(origin.right) &&
         may_follow(origin.left, origin.right, origin.rank);
}

// Whether the text of the two tokens has them as its result. Takes the two apart again, last merge
// first, and looks whether the tokens on both sides of the border would have been merged before:
// with a rank below `limit`, the next merge undone.
bool Bpe::may_follow(int32_t left, int32_t right, int32_t limit) const {
  if (!origins_are_unique_) {
    return merge_by_rank(tokens_[left] + tokens_[right]) == std::vector<int32_t>{left, right};
  }
  while (true) {
    const Origin& of_left = origins_[left];
    const Origin& of_right = origins_[right];
    // Mostly one of the two has no merge of such a rank with any token, which spares the look-up.
    if (of_left.lowest_as_left < limit && of_right.lowest_as_right < limit &&
        ranks_.find(left, right) < limit) {
      return false;
    }
    if (of_left.rank > of_right.rank) {
      limit = of_left.rank;
      left = of_left.right;
    } else if (of_right.rank >= 0) {
      limit = of_right.rank + 1;  // of equal ranks, the border comes before what is to its right
      right = of_right.left;
    } else {
      return true;
    }
  }
}

// The definition, in square time: only for one or two tokens.
std::vector<int32_t> Bpe::merge_by_rank(std::string_view word) const {
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(id_of_byte_[static_cast<unsigned char>(c)]);
  while (true) {
    int32_t best = PairTable::kNone;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const int32_t rank = ranks_.find(ids[i], ids[i + 1]);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == PairTable::kNone) return ids;
    ids[at] = product_of_rank_[best];
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

void Bpe::find_shorter() {
  shorter_.assign(tokens_.size(), -1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view token = tokens_[id];
    if (token.size() > 1) shorter_[id] = trie_.longest(token.substr(0, token.size() - 1)).id;
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  std::vector<bool> is_dead_end;  // by place in the word; filled on the first step back
  size_t pos = 0;
  TokenTrie::Match next = trie_.longest(word);
  auto take_shorter = [&] {
    next.id = shorter_[next.id];
    next.length = next.id < 0 ? 0 : tokens_[next.id].size();
  };
  while (pos < word.size()) {
    const bool is_dead = !is_dead_end.empty() && is_dead_end[pos + next.length];
    if (!is_dead && (ids.size() == first || may_follow(ids.back(), next.id))) {
      ids.push_back(next.id);
      pos += next.length;
      next = trie_.longest(word.substr(pos));
      continue;
    }
    take_shorter();
    while (next.id < 0) {
      SHARDLOOM_CHECK(ids.size() > first, "no tokens for \"{}\"", word);
      is_dead_end.resize(word.size() + 1);
      is_dead_end[pos] = true;
      next.id = ids.back();
      ids.pop_back();
      pos -= tokens_[next.id].size();
      take_shorter();
    }
  }
}

}  // namespace shardloom::tokenizer
