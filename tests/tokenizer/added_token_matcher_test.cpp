#include "shardloom/tokenizer/added_token_matcher.h"

#include <gtest/gtest.h>

namespace shardloom::tokenizer {
namespace {

std::string cut(const AddedTokenMatcher& matcher,
                std::string_view text,
                const std::vector<int32_t>& plain = {}) {
  std::string pieces;
  matcher.cut(
      text, plain, [&](std::string_view piece) { pieces.append("(").append(piece).append(")"); },
      [&](int32_t id) { pieces += std::to_string(id); });
  return pieces;
}

TEST(AddedTokenMatcherTest, CutsLeftmostLongest) {
  const AddedTokenMatcher matcher({{"<a>", 1}, {"<a>b", 2}, {"<b", 3}, {"a><b>", 4}});
  EXPECT_EQ(cut(matcher, ""), "");
  EXPECT_EQ(cut(matcher, "<a"), "(<a)");
  EXPECT_EQ(cut(matcher, "x<a>"), "(x)1");
  EXPECT_EQ(cut(matcher, "<a>bc<b"), "2(c)3");
  EXPECT_EQ(cut(matcher, "<a><b>"), "13(>)");
  EXPECT_EQ(cut(matcher, "a><b>"), "4");
  EXPECT_EQ(cut(matcher, "<<a>"), "(<)1");
}

TEST(AddedTokenMatcherTest, PlainTokensAreOverlooked) {
  const AddedTokenMatcher matcher({{"<a>", 1}, {"<a>b", 2}});
  EXPECT_EQ(cut(matcher, "<a>b<a>", {2}), "1(b)1");
  EXPECT_EQ(cut(matcher, "<a>b<a>", {1}), "2(<a>)");
  EXPECT_EQ(cut(matcher, "<a>b<a>", {1, 2}), "(<a>b<a>)");
}

TEST(AddedTokenMatcherTest, WithoutTokensAllIsText) {
  EXPECT_EQ(cut(AddedTokenMatcher({}), "<a>"), "(<a>)");
}

}  // namespace
}  // namespace shardloom::tokenizer
