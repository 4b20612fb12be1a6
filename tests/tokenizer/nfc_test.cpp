#include "shardloom/tokenizer/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>

#include "tests/tokenizer/test_tokenizers.h"

namespace shardloom::tokenizer {
namespace {

std::string nfc(const std::string& text) {
  std::string buffer;
  return std::string(to_nfc(text, buffer));
}

// The whole text through utf8proc, without the quick check.
std::string reference(const std::string& text) {
  utf8proc_uint8_t* mapped = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  std::string out(reinterpret_cast<char*>(mapped));
  std::free(mapped);
  return out;
}

TEST(NfcTest, TextInNfcIsGivenBackAsItIs) {
  const std::string text =
      "plain, caf\u00e9, \u4e2d\u6587, \uac00, a\u0323\u0301 has no composed form with both";
  const std::string normal = reference(text);
  std::string buffer;
  EXPECT_EQ(to_nfc("ascii only", buffer), "ascii only");
  EXPECT_EQ(to_nfc("\u4e2d\u6587\u00e9", buffer), "\u4e2d\u6587\u00e9");
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(nfc(normal), normal);
}

TEST(NfcTest, KnownForms) {
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("\u1100\u1161"), "\uac00");
  EXPECT_EQ(nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u212a"), "K");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(nfc("\u1fd3"), "\u0390");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1ea1\u0301");
  EXPECT_EQ(nfc("x e\u0301 y o\u0308"), "x \u00e9 y \u00f6");
}

TEST(NfcTest, EveryCodePointAloneAndBetweenOthers) {
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_EQ(nfc(text), reference(text)) << std::hex << static_cast<uint32_t>(c);
    if (c >= 0x30000) continue;
    text = "a\u0316" + text + "\u0301b\u0308";
    ASSERT_EQ(nfc(text), reference(text)) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(NfcTest, RandomText) {
  std::mt19937 random(1);
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (const char byte : random_text(random, 20)) {
      if (byte != '\0') text += byte;  // where utf8proc_NFC stops
    }
    ASSERT_EQ(nfc(text), reference(text)) << text;
  }
}

// A line of marks alone, out of order: ordering by swaps of neighbours would take days.
TEST(NfcTest, LongRunsOfMarks) {
  constexpr int kMarks = 500000;
  std::string text = "a", expected = "\u1ea1";
  for (int i = 0; i < kMarks; ++i) text += "\u0301";
  for (int i = 0; i < kMarks; ++i) text += "\u0323";
  for (int i = 1; i < kMarks; ++i) expected += "\u0323";
  for (int i = 0; i < kMarks; ++i) expected += "\u0301";
  EXPECT_TRUE(nfc(text) == expected);
}

TEST(NfcTest, KeepsNulBytes) {
  using std::string_literals::operator""s;
  EXPECT_EQ(nfc("a\0e\u0301\0"s), "a\0\u00e9\0"s);
}

}  // namespace
}  // namespace shardloom::tokenizer
