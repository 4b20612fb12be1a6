#include "shardloom/tokenizer/token_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace shardloom::tokenizer {
namespace {

TEST(TokenTrieTest, EmptySetFindsNothing) {
  const TokenTrie trie({});
  EXPECT_EQ(trie.longest("abc").id, -1);
}

TEST(TokenTrieTest, FindsTheLongest) {
  using std::string_view_literals::operator""sv;
  const TokenTrie trie({{"a", 1}, {"abc", 2}, {"\0"sv, 3}, {"\0\xFF"sv, 4}});
  EXPECT_EQ(trie.longest("abx").id, 1);
  EXPECT_EQ(trie.longest("abx").length, 1u);
  EXPECT_EQ(trie.longest("abcabc").id, 2);
  EXPECT_EQ(trie.longest("\0\0"sv).id, 3);
  EXPECT_EQ(trie.longest("\0\xFF\0"sv).id, 4);
  EXPECT_EQ(trie.longest("b").id, -1);
  EXPECT_EQ(trie.longest("").id, -1);
}

TEST(TokenTrieTest, AgreesWithAMap) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const unsigned letters = round % 2 == 0 ? 3 : 256;
    auto random_bytes = [&](size_t most) {
      std::string bytes(1 + random() % most, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random() % letters);
      return bytes;
    };
    std::map<std::string, int32_t> strings;
    for (int32_t id = 0; id < 3000; ++id) strings.emplace(random_bytes(7), id);
    const TokenTrie trie({strings.begin(), strings.end()});
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_bytes(10);
      std::vector<std::pair<int32_t, size_t>> wanted;
      for (size_t length = 1; length <= text.size(); ++length) {
        const auto found = strings.find(text.substr(0, length));
        if (found != strings.end()) wanted.emplace_back(found->second, length);
      }
      std::vector<std::pair<int32_t, size_t>> visited;
      trie.for_each_prefix(text,
                           [&](int32_t id, size_t length) { visited.emplace_back(id, length); });
      ASSERT_EQ(visited, wanted);
      const TokenTrie::Match longest = trie.longest(text);
      const TokenTrie::Match none;
      ASSERT_EQ(longest.id, wanted.empty() ? none.id : wanted.back().first);
      ASSERT_EQ(longest.length, wanted.empty() ? none.length : wanted.back().second);
    }
  }
}

}  // namespace
}  // namespace shardloom::tokenizer
