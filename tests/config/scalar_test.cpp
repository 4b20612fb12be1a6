#include "shardloom/config/scalar.h"

#include <cmath>

#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::HasSubstr;

YamlNode plain(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  return node;
}

YamlNode quoted(const std::string& text) {
  YamlNode node = plain(text);
  node.quoted = true;
  return node;
}

template <typename Read>
std::string fault(Read read, const YamlNode& node) {
  try {
    read(node);
    return "";
  } catch (const BadValue& error) {
    return error.what();
  }
}

TEST(Scalar, Booleans) {
  for (const char* text : {"true", "True", "TRUE"}) EXPECT_TRUE(read_bool(plain(text))) << text;
  for (const char* text : {"false", "False", "FALSE"}) EXPECT_FALSE(read_bool(plain(text))) << text;
  EXPECT_EQ(fault(read_bool, plain("yes")), "expected true or false, got \"yes\"; write true");
  EXPECT_EQ(fault(read_bool, plain("Off")), "expected true or false, got \"Off\"; write false");
  EXPECT_EQ(fault(read_bool, quoted("true")),
            "expected true or false, got the quoted text \"true\"; remove the quotes");
  for (const char* text : {"no", "on", "1", "0", "tRue", "t", "", "y", "n"}) {
    EXPECT_NE(fault(read_bool, plain(text)), "") << text;
  }
}

TEST(Scalar, WholeNumbers) {
  EXPECT_EQ(read_int(plain("0")), 0);
  EXPECT_EQ(read_int(plain("-7")), -7);
  EXPECT_EQ(read_int(plain("+7")), 7);
  EXPECT_EQ(read_int(plain("2e3")), 2000);
  EXPECT_EQ(read_int(plain("2000.0")), 2000);
  EXPECT_EQ(read_int(plain("1.5e1")), 15);
  EXPECT_EQ(read_int(plain("9223372036854775807")), INT64_MAX);
  EXPECT_EQ(read_int(plain("-9223372036854775808")), INT64_MIN);
}

TEST(Scalar, NotWholeNumbers) {
  for (const char* text :
       {"1.5",   "2e-3",  "042",  "-042", "0x10", "0o17",  "0b1", "1_000", "9223372036854775808",
        "1e300", "1e999", "1e16", ".nan", ".inf", "-.inf", "abc", "1 2",   "1,000",
        "",      "true",  "2e",   "e3",   ".",    "--1",   "+-1", "1:30"}) {
    EXPECT_NE(fault(read_int, plain(text)), "") << text;
  }
  EXPECT_THAT(fault(read_int, plain("042")), HasSubstr("octal"));
  EXPECT_EQ(fault(read_int, quoted("5")),
            "expected a whole number, got the quoted text \"5\"; remove the quotes");
}

TEST(Scalar, Numbers) {
  EXPECT_DOUBLE_EQ(read_float(plain("1e-5")), 1e-5);
  EXPECT_DOUBLE_EQ(read_float(plain("1.0e-5")), 1e-5);
  EXPECT_DOUBLE_EQ(read_float(plain("1E+2")), 100.0);
  EXPECT_DOUBLE_EQ(read_float(plain(".5")), 0.5);
  EXPECT_DOUBLE_EQ(read_float(plain("5.")), 5.0);
  EXPECT_DOUBLE_EQ(read_float(plain("+5")), 5.0);
  EXPECT_DOUBLE_EQ(read_float(plain("-0.25")), -0.25);
}

TEST(Scalar, NotNumbers) {
  for (const char* text : {".nan", ".NaN", "nan", ".inf", "-.inf", "inf"}) {
    EXPECT_THAT(fault(read_float, plain(text)), HasSubstr("is not finite")) << text;
  }
  for (const char* text :
       {"1e999", "1e-999", "01.5", "1e", "0x1p3", "1,5", "true", "null", "1.2.3"}) {
    EXPECT_NE(fault(read_float, plain(text)), "") << text;
  }
}

TEST(Scalar, Text) {
  for (const char* text :
       {"a", "./x", "$HOME/x", "1.2.3", "layers.{*}", "nullish", "truely", "2024-01-02", "/0"}) {
    EXPECT_EQ(read_text(plain(text)), text);
  }
  for (const char* text : {"42", "1e5", "true", "False", "yes", "off", "042", "0x10", ".nan"}) {
    EXPECT_THAT(fault(read_text, plain(text)), HasSubstr("quote it")) << text;
    EXPECT_EQ(read_text(quoted(text)), text);
  }
  EXPECT_EQ(read_text(quoted("")), "");
  YamlNode list;
  list.kind = YamlNode::Kind::kSequence;
  EXPECT_EQ(fault(read_text, list), "expected text, got a list");
}

TEST(Scalar, WrittenTextReadsBack) {
  for (const std::string text :
       {"",    "a b",     "42",           "true",  "~",    "null", "a: b", "#x", "- x",
        "{*}", "a\"b\\c", "line\nbreak",  "tab\t", "图片", "yes",  "*x",   "&x", "'",
        "-x",  "\x7f",    "layers.{0-3}", "Null"}) {
    Problems problems;
    const YamlNode root = parse_yaml("k: [" + write_text(text) + "]", "f", problems);
    EXPECT_EQ(read_text(root.find("k")->value.items.at(0)), text);
  }
}

TEST(Scalar, WrittenNumbersReadBack) {
  for (const double value : {0.0, 1.0, 1e-5, 0.1, 1e22, 5e-324, 1.7976931348623157e308, -2.5}) {
    EXPECT_EQ(read_float(plain(write_float(value))), value);
  }
}

}  // namespace
}  // namespace shardloom::config
