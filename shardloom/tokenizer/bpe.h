// Byte-pair encoding of one word: repeatedly merges the adjacent pair of lowest rank, the leftmost
// of equal ones.
//
// Not computed by merging. A sequence of tokens is the result for its text if and only if each pair
// of neighbours is the result for the text of that pair: until the first merge across a border,
// what happens on both sides of it is what happens to the pair alone. So the longest token that may
// follow the one before is taken, with a step back where none may, and each place of the word is
// entered at most once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/tokenizer/pair_table.h"
#include "shardloom/tokenizer/token_trie.h"

namespace shardloom::tokenizer {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t product;
};

class Bpe {
 public:
  // `tokens[id]` are the bytes of a token ("" where the id is not one of this vocabulary); each of
  // the 256 bytes is a token. `merges` stand in order of rank, and product = left + right. Throws
  // DataError, which begins with `place`, for a pair that is given twice.
  Bpe(std::vector<std::string> tokens, const std::vector<Merge>& merges, const std::string& place);

  // Appends the ids of `word`.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  const std::string& bytes(int32_t id) const { return tokens_[id]; }

 private:
  // How a token comes about (of a single byte: rank -1), and where it goes.
  struct Origin {
    int32_t rank = -1;
    int32_t left = -1;
    int32_t right = -1;
    // The lowest rank of a merge that has the token as its left, or right, part.
    int32_t lowest_as_left = PairTable::kNone;
    int32_t lowest_as_right = PairTable::kNone;
  };

  bool read_origins(const std::vector<Merge>& merges, const std::string& place);
  bool is_own_result(int32_t id) const;
  bool may_follow(int32_t left, int32_t right, int32_t limit = PairTable::kNone) const;
  std::vector<int32_t> merge_by_rank(std::string_view word) const;
  void find_shorter();

  std::vector<std::string> tokens_;
  std::vector<int32_t> id_of_byte_;
  PairTable ranks_;
  std::vector<int32_t> product_of_rank_;
  std::vector<Origin> origins_;
  // Each token is the product of one merge only, and of parts that are merged before. Else pairs
  // are tried out by merging.
  bool origins_are_unique_;
  // Of the tokens that are the result for their own text; no other can occur in a result.
  TokenTrie trie_;
  std::vector<int32_t> shorter_;  // the longest token in trie_ that the token begins with, or -1
};

}  // namespace shardloom::tokenizer
