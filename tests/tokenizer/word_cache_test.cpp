#include "shardloom/tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace shardloom::tokenizer {
namespace {

using Key = std::array<uint64_t, 2>;

TEST(WordCacheTest, KeyIsTheWordAndNothingBehindIt) {
  WordCache cache;
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  std::set<Key> keys;
  for (size_t length = 1; length <= WordCache::kMaxWord; ++length) {
    Key in_text;
    Key at_end;
    Key other;
    WordCache::Entry& entry = cache.slot(text, 0, length, in_text);
    EXPECT_EQ(&cache.slot(text.substr(0, length), 0, length, at_end), &entry);
    EXPECT_EQ(in_text, at_end);
    cache.slot(text, 1, length, other);
    EXPECT_NE(in_text, other);
    keys.insert(in_text);
    EXPECT_NE(entry.key, in_text);  // nothing was put in yet
  }
  EXPECT_EQ(keys.size(), WordCache::kMaxWord);
}

TEST(WordCacheTest, NulBytesCount) {
  WordCache cache;
  const std::string text(16, '\0');
  Key one;
  Key two;
  cache.slot(text, 0, 1, one);
  cache.slot(text, 0, 2, two);
  EXPECT_NE(one, two);
  EXPECT_NE(one, Key());
}

}  // namespace
}  // namespace shardloom::tokenizer
