#include "shardloom/cli/tokenize.h"

#include <gtest/gtest.h>

#include <sstream>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "tests/tokenizer/test_tokenizers.h"

namespace shardloom::cli {
namespace {

using Lines = decltype(&encode_lines);

std::string run(Lines lines, const std::string& input) {
  std::istringstream in(input);
  std::ostringstream out;
  lines(tokenizer::qwen(), in, out, "<stdin>");
  return out.str();
}

std::string error_of(Lines lines, const std::string& input) {
  try {
    run(lines, input);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizeCommandTest, EncodesLines) {
  EXPECT_EQ(run(encode_lines, "{\"text\": \"Hello world\"}\n{\"text\": \"\"}\n"),
            "{\"ids\": [9707, 1879]}\n{\"ids\": []}\n");
  EXPECT_EQ(run(encode_lines, R"({"id": 1, "text": "<img>\u4e2d"})"),
            "{\"ids\": [151669, 15946]}\n");
  EXPECT_EQ(run(encode_lines, ""), "");
}

TEST(TokenizeCommandTest, DecodesLines) {
  EXPECT_EQ(run(decode_lines, "{\"ids\": [9707, 1879]}\r\n{\"ids\": []}"),
            "{\"text\": \"Hello world\"}\n{\"text\": \"\"}\n");
  EXPECT_EQ(run(decode_lines, R"({"ids": [15946, 198, 1, 222]})"),
            "{\"text\": \"\u4e2d\\n\\\"\uFFFD\"}\n");
}

TEST(TokenizeCommandTest, DecodedLinesAreThoseThatWereEncoded) {
  std::mt19937 random(9);
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    std::string buffer;
    const std::string text =
        tokenizer::qwen().decode(tokenizer::qwen().encode(tokenizer::random_text(random)));
    lines += fmt::format("{{\"text\": {}}}\n", Json(text).dump());
  }
  EXPECT_EQ(run(decode_lines, run(encode_lines, lines)), lines);
}

TEST(TokenizeCommandTest, NamesTheBadLine) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_EQ(error_of(encode_lines, good + "{\"text\": x}"), "<stdin>:2:10: not valid JSON");
  EXPECT_EQ(error_of(encode_lines, good + "\n"), "<stdin>:2:1: not valid JSON");
  EXPECT_EQ(error_of(encode_lines, "\"a\""), "<stdin>:1: expected an object, found \"a\"");
  EXPECT_EQ(error_of(encode_lines, "{\"ids\": [1]}"), "<stdin>:1: \"text\" is missing");
  EXPECT_EQ(error_of(encode_lines, "{\"text\": 1}"), "<stdin>:1: \"text\" is 1, not a text");
  EXPECT_EQ(error_of(encode_lines, "{\"text\": \"\\ud800\"}").substr(0, 10), "<stdin>:1:");
  EXPECT_EQ(error_of(encode_lines, "{\"text\": \"\xFF\"}").substr(0, 10), "<stdin>:1:");
  EXPECT_EQ(error_of(decode_lines, good), "<stdin>:1: \"ids\" is missing");
  EXPECT_EQ(error_of(decode_lines, "{\"ids\": 1}"), "<stdin>:1: \"ids\" is not a list of numbers");
  for (const char* bad : {"-1", "1.5", "\"1\"", "4294967296", "18446744073709551615", "null"}) {
    EXPECT_EQ(error_of(decode_lines, fmt::format("{{\"ids\": [0, {}]}}", bad)),
              fmt::format("<stdin>:1: {} is not a token id", bad));
  }
  EXPECT_EQ(error_of(decode_lines, "{\"ids\": [151678]}"),
            "<stdin>:1: id 151678 does not exist; the tokenizer has ids 0 to 151677");
}

}  // namespace
}  // namespace shardloom::cli
