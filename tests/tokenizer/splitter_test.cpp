#include "shardloom/tokenizer/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/tokenizer/regex_translation.h"
#include "tests/tokenizer/test_tokenizers.h"

namespace shardloom::tokenizer {
namespace {

using Words = std::vector<std::string>;

Words words_of(const Splitter& splitter, std::string_view text) {
  std::vector<size_t> ends;
  splitter.split(text, ends);
  Words words;
  size_t start = 0;
  for (const size_t end : ends) {
    words.emplace_back(text.substr(start, end - start));
    start = end;
  }
  EXPECT_EQ(start, text.size());
  return words;
}

Words qwen_words(std::string_view text) { return words_of(*make_qwen_splitter(), text); }

Words regex_words(const std::string& pattern, std::string_view text) {
  return words_of(*make_regex_splitter(pattern, "t.json"), text);
}

std::string refusal_of(const std::string& pattern) {
  try {
    make_regex_splitter(pattern, "t.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

// Right values: the same regex in the `tokenizers` package.
TEST(QwenSplitterTest, KnownCuts) {
  EXPECT_EQ(qwen_words("O'Reilly's"), (Words{"O", "'Re", "illy", "'s"}));
  EXPECT_EQ(qwen_words("'\u017fx 'S 'LL 'x"),
            (Words{"'\u017f", "x", " '", "S", " '", "LL", " '", "x"}));
  EXPECT_EQ(qwen_words("a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(qwen_words("x \n\n y"), (Words{"x", " \n\n", " y"}));
  EXPECT_EQ(qwen_words("12 345"), (Words{"1", "2", " ", "3", "4", "5"}));
  EXPECT_EQ(qwen_words("a   "), (Words{"a", "   "}));
  EXPECT_EQ(qwen_words("\tx\t\ty \t!"), (Words{"\tx", "\t", "\ty", " ", "\t", "!"}));
  EXPECT_EQ(qwen_words("end.\r\n\r\nNext"), (Words{"end", ".\r\n\r\n", "Next"}));
  EXPECT_EQ(qwen_words(" (x) ==\n"), (Words{" (", "x", ")", " ==\n"}));
  EXPECT_EQ(qwen_words("\u3000\u4e2d\u6587\uff0c\u597d"),
            (Words{"\u3000\u4e2d\u6587", "\uff0c\u597d"}));
  EXPECT_EQ(qwen_words("a\u0301b"), (Words{"a", "\u0301b"}));
}

TEST(QwenSplitterTest, WhiteSpaceIsThatOfTheTokenizersPackage) {
  std::string spaces;
  for (char32_t c = 1; c < 0x10000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string pair;
    append_utf8(c, pair);
    append_utf8(c, pair);
    // Two symbols are one word, two blanks before a digit are two.
    const bool is_space = qwen_words(pair + "1").size() == 3 && qwen_words(pair).size() == 1;
    const bool is_newline = c == '\r' || c == '\n';
    if (is_space || is_newline) append_utf8(c, spaces);
  }
  EXPECT_EQ(spaces,
            "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
            "\u2009\u200a\u2028\u2029\u202f\u205f\u3000");
}

// Both read the same regex, one by hand, one through PCRE2.
TEST(QwenSplitterTest, AgreesWithTheRegex) {
  const auto by_hand = make_qwen_splitter();
  const auto by_regex = make_regex_splitter(std::string(kQwenPattern), "t.json");
  std::mt19937 random(2);
  std::vector<size_t> left;
  std::vector<size_t> right;
  for (int i = 0; i < 100000; ++i) {
    const std::string text = random_text(random);
    by_hand->split(text, left);
    by_regex->split(text, right);
    ASSERT_EQ(left, right) << text;
  }
}

TEST(RegexSplitterTest, WhatDoesNotMatchIsAWord) {
  EXPECT_EQ(regex_words(R"(\p{N})", "ab1c22"), (Words{"ab", "1", "c", "2", "2"}));
  EXPECT_EQ(regex_words(R"(x)", ""), Words());
  EXPECT_EQ(regex_words(R"(\p{N}*)", "\u4e2d1\u4e2d"), (Words{"\u4e2d", "1", "\u4e2d"}));
}

TEST(RegexSplitterTest, OtherPatternsOfTheField) {
  EXPECT_EQ(regex_words(std::string(kGpt2Pattern), "I'm 42  ok"),
            (Words{"I", "'m", " 42", " ", " ok"}));
  EXPECT_EQ(regex_words(R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})", "abc12345"),
            (Words{"abc", "123", "45"}));
  EXPECT_EQ(regex_words(R"([\p{Lu}\p{Lt}]*[\p{Ll}\p{Lm}]+)", "HelloWorld"),
            (Words{"Hello", "World"}));
}

TEST(RegexSplitterTest, WhiteSpaceIsThatOfTheTokenizersPackage) {
  EXPECT_EQ(regex_words(R"(\s+)", "a\u180eb\u0085c"), (Words{"a\u180eb", "\u0085", "c"}));
  EXPECT_EQ(regex_words(R"(\S+)", "a\u180eb\u0085c"), (Words{"a\u180eb", "\u0085", "c"}));
  EXPECT_EQ(regex_words(R"([\S]+)", "a\u180eb\u0085c"), (Words{"a\u180eb", "\u0085", "c"}));
  EXPECT_EQ(regex_words(R"([^\s]+)", "a\u180eb\u0085c"), (Words{"a\u180eb", "\u0085", "c"}));
}

TEST(RegexSplitterTest, RefusesByNameWhatTheEnginesReadDifferently) {
  for (const char* construct : {R"(\w)", R"(\b)", R"(\h)", R"(\R)", R"(\p{Han})", R"(\pL)", "^",
                                "$", "(?m)", "(?<x", "}+"}) {
    const std::string pattern =
        std::string(construct) == "}+" ? "a{1,2}+" : fmt::format("a{}b)", construct);
    EXPECT_THAT(refusal_of(pattern),
                testing::StartsWith("t.json: the regex construct \"" + std::string(construct)));
  }
  EXPECT_THAT(refusal_of("[a[b]]"), testing::HasSubstr("[ within [...]"));
  EXPECT_THAT(refusal_of("[a&&b]"), testing::HasSubstr("&&"));
  EXPECT_THAT(refusal_of("a\\"), testing::HasSubstr("construct \"\\\" at offset 1"));
}

TEST(RegexSplitterTest, RefusesAWrongRegex) {
  EXPECT_THAT(refusal_of("(a"),
              testing::StartsWith("t.json: the pre-tokenizer regex (a is not valid: "));
}

TEST(RegexSplitterTest, LongTextIsNoTrouble) {
  const auto splitter = make_regex_splitter(std::string(kQwenPattern), "t.json");
  EXPECT_EQ(words_of(*splitter, std::string(1 << 20, 'a')).size(), 1u);
  EXPECT_EQ(words_of(*splitter, std::string(1 << 20, ' ')).size(), 1u);
}

}  // namespace
}  // namespace shardloom::tokenizer
