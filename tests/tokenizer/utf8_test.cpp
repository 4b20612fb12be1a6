#include "shardloom/tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace shardloom::tokenizer {
namespace {

TEST(Utf8Test, EveryCodePointSurvivesTheWayThereAndBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    const CodePoint read = decode_utf8(text, 0);
    ASSERT_EQ(read.value, c);
    ASSERT_EQ(read.length, text.size());
  }
}

TEST(Utf8Test, FindsTheFirstByteThatIsNotAscii) {
  for (size_t at = 0; at < 20; ++at) {
    std::string text(20, 'x');
    EXPECT_EQ(find_non_ascii(text, at), 20u);
    text[at] = '\x80';
    EXPECT_EQ(find_non_ascii(text, 0), at);
    EXPECT_EQ(find_non_ascii(text, at), at);
  }
}

TEST(Utf8Test, FindsInvalidTextBehindAscii) {
  EXPECT_EQ(find_invalid_text("plain ascii, long enough"), std::nullopt);
  EXPECT_EQ(find_invalid_text("0123456789\u4e2d\u00e9"), std::nullopt);
  EXPECT_EQ(find_invalid_text("0123456789\u4e2d\xFFz"), 13u);
}

// Right values: Python's bytes.decode("utf-8", errors="replace").
TEST(Utf8Test, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_invalid_utf8("a\u4e2d\U0001F600"), "a\u4e2d\U0001F600");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8x"), "\uFFFDx");
  EXPECT_EQ(replace_invalid_utf8("x\x80\x80y"), "x\uFFFD\uFFFDy");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xE4\xB8\xAD"), "\uFFFD\u4e2d");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF5\xFF"), "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace shardloom::tokenizer
