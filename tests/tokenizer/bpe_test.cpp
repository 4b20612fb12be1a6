#include "shardloom/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "shardloom/base/error.h"

namespace shardloom::tokenizer {
namespace {

// The 256 bytes, and tokens made of them by merges.
class Dictionary {
 public:
  Dictionary() {
    for (int byte = 0; byte < 256; ++byte) id_of(std::string(1, static_cast<char>(byte)));
  }

  int32_t id_of(const std::string& token) {
    const auto [entry, is_new] = ids_.emplace(token, static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(token);
    return entry->second;
  }

  bool has(const std::string& token) const { return ids_.count(token) > 0; }

  bool add_merge(const std::string& left, const std::string& right) {
    const auto rank = static_cast<int32_t>(merges.size());
    if (!ranks_.emplace(std::pair(id_of(left), id_of(right)), rank).second) return false;
    merges.push_back({id_of(left), id_of(right), id_of(left + right)});
    return true;
  }

  void shuffle_merges(std::mt19937& random) {
    std::shuffle(merges.begin(), merges.end(), random);
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      ranks_[{merges[rank].left, merges[rank].right}] = static_cast<int32_t>(rank);
    }
  }

  // The definition of BPE, one merge at a time.
  std::vector<int32_t> merge_by_hand(const std::string& word) const {
    std::vector<int32_t> ids;
    for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
    while (true) {
      auto best = ranks_.end();
      size_t at = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = ranks_.find({ids[i], ids[i + 1]});
        if (found == ranks_.end()) continue;
        if (best == ranks_.end() || found->second < best->second) {
          best = found;
          at = i;
        }
      }
      if (best == ranks_.end()) return ids;
      ids[at] = merges[best->second].product;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
  }

  std::vector<std::string> tokens;
  std::vector<Merge> merges;

 private:
  std::map<std::string, int32_t> ids_;
  std::map<std::pair<int32_t, int32_t>, int32_t> ranks_;
};

std::vector<int32_t> encode(const Bpe& bpe, std::string_view word) {
  std::vector<int32_t> ids;
  bpe.encode(word, ids);
  return ids;
}

std::string random_word(std::mt19937& random, size_t longest) {
  std::string word(1 + random() % longest, 'a');
  for (char& c : word) c = static_cast<char>('a' + random() % 3);
  return word;
}

void expect_same_as_by_hand(const Dictionary& dictionary, std::mt19937& random) {
  const Bpe bpe(dictionary.tokens, dictionary.merges, "test");
  for (int i = 0; i < 300; ++i) {
    const std::string word = random_word(random, 30);
    ASSERT_EQ(encode(bpe, word), dictionary.merge_by_hand(word)) << word;
  }
}

TEST(BpeTest, LowestRankFirstThenLeftmost) {
  Dictionary dictionary;
  dictionary.add_merge("b", "c");
  dictionary.add_merge("a", "b");
  dictionary.add_merge("a", "a");
  dictionary.add_merge("aa", "a");
  const Bpe bpe(dictionary.tokens, dictionary.merges, "test");
  auto texts = [&](std::string_view word) {
    std::vector<std::string> tokens;
    for (const int32_t id : encode(bpe, word)) tokens.push_back(bpe.bytes(id));
    return tokens;
  };
  EXPECT_EQ(texts("abc"), (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(texts("aaa"), (std::vector<std::string>{"aaa"}));
  EXPECT_EQ(texts("aaaa"), (std::vector<std::string>{"aa", "aa"}));
  EXPECT_EQ(texts("aaaaa"), (std::vector<std::string>{"aa", "aaa"}));
  EXPECT_EQ(texts("aab"), (std::vector<std::string>{"a", "ab"}));
}

// Each token made by one merge of parts made before, as training does it.
TEST(BpeTest, TrainedDictionaries) {
  std::mt19937 random(4);
  for (int round = 0; round < 150; ++round) {
    Dictionary dictionary;
    std::vector<std::string> made = {"a", "b", "c"};
    for (int i = 0; i < 40; ++i) {
      const std::string left = made[random() % made.size()];
      const std::string right = made[random() % made.size()];
      if (dictionary.has(left + right)) continue;
      dictionary.add_merge(left, right);
      made.push_back(left + right);
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_as_by_hand(dictionary, random));
  }
}

// Merges of all splits of a token, as converters from ranks write them, and merges in any order.
TEST(BpeTest, DictionariesWithSeveralMergesToOneToken) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    Dictionary dictionary;
    std::vector<std::string> made = {"a", "b", "c"};
    for (int i = 0; i < 40; ++i) {
      const std::string left = made[random() % made.size()];
      const std::string right = made[random() % made.size()];
      if (left.size() + right.size() < 9 && dictionary.add_merge(left, right)) {
        made.push_back(left + right);
      }
    }
    if (round % 2 == 0) dictionary.shuffle_merges(random);
    ASSERT_NO_FATAL_FAILURE(expect_same_as_by_hand(dictionary, random));
  }
}

TEST(BpeTest, TokensThatNoMergeMakesDoNotOccur) {
  Dictionary dictionary;
  dictionary.id_of("ab");
  dictionary.add_merge("b", "c");
  const Bpe bpe(dictionary.tokens, dictionary.merges, "test");
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<int32_t>{'a', dictionary.id_of("bc")}));
  EXPECT_EQ(encode(bpe, "ab"), (std::vector<int32_t>{'a', 'b'}));
}

// Square time, or a step back through the whole word, would take minutes.
TEST(BpeTest, LongWordsTakeLinearTime) {
  Dictionary dictionary;
  std::string run = "a";
  for (int i = 0; i < 6; ++i) {
    dictionary.add_merge(run, run);
    run += run;
  }
  dictionary.add_merge("b", "c");
  dictionary.add_merge("a", "bc");
  const Bpe bpe(dictionary.tokens, dictionary.merges, "test");
  const size_t count = size_t{1} << 20;
  EXPECT_EQ(encode(bpe, std::string(count, 'a')).size(), count / 64);
  const std::vector<int32_t> ids = encode(bpe, std::string(count - 1, 'a') + "bc");
  EXPECT_EQ(bpe.bytes(ids.back()), "abc");
}

TEST(BpeTest, AppendsToWhatIsThere) {
  const Dictionary dictionary;
  const Bpe bpe(dictionary.tokens, dictionary.merges, "test");
  std::vector<int32_t> ids = {7};
  bpe.encode("xy", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{7, 'x', 'y'}));
}

TEST(BpeTest, RefusesAPairGivenTwice) {
  Dictionary dictionary;
  dictionary.add_merge("a", "b");
  dictionary.merges.push_back(dictionary.merges.front());
  try {
    const Bpe bpe(dictionary.tokens, dictionary.merges, "m.txt");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "m.txt: the merge of \"a\" and \"b\" is given twice");
  }
}

}  // namespace
}  // namespace shardloom::tokenizer
