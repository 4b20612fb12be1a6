#include "shardloom/config/yaml.h"

#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

YamlNode parse(const std::string& text) {
  Problems problems;
  YamlNode node = parse_yaml(text, "f", problems);
  problems.throw_if_any();
  return node;
}

std::string fault(const std::string& text) {
  return error_of([&] { parse(text); });
}

const YamlNode& at(const YamlNode& map, const char* key) {
  const YamlEntry* entry = map.find(key);
  EXPECT_NE(entry, nullptr) << key;
  return entry->value;
}

TEST(Yaml, KnowsPlaces) {
  const YamlNode root = parse("a:\n  b: 1\n  c: [x, y]\n");
  const YamlNode& a = at(root, "a");
  EXPECT_EQ(at(a, "b").place.str(), "f:2:6");
  EXPECT_EQ(a.find("c")->key_place.str(), "f:3:3");
  EXPECT_EQ(at(a, "c").items[1].place.str(), "f:3:10");
}

TEST(Yaml, EmptyValueStandsAtItsKey) {
  EXPECT_EQ(at(parse("a:\nb: 1\n"), "a").place.str(), "f:1:1");
}

TEST(Yaml, QuotedScalarsAreText) {
  const YamlNode root = parse("a: \"1\"\nb: '1'\nc: 1\nd: |\n  1\n");
  EXPECT_TRUE(at(root, "a").quoted);
  EXPECT_TRUE(at(root, "b").quoted);
  EXPECT_FALSE(at(root, "c").quoted);
  EXPECT_TRUE(at(root, "d").quoted);
}

TEST(Yaml, DuplicateKeysNameBothLines) {
  EXPECT_EQ(fault("a:\n  b: 1\n  c: 2\n  b: 3\n"),
            "f:4:3: duplicate key a.b (first given on line 2)");
  EXPECT_EQ(fault("a: 1\nb: 2\na: 3\n"), "f:3:1: duplicate key a (first given on line 1)");
}

TEST(Yaml, AllDuplicatesAreReported) {
  EXPECT_EQ(fault("a: {x: 1, x: 2}\nb: {y: 1, y: 2}\n"),
            "f:1:11: duplicate key a.x (first given on line 1)\n"
            "f:2:11: duplicate key b.y (first given on line 2)");
}

TEST(Yaml, MergeKeepsExplicitKeys) {
  const YamlNode root = parse("x: &x {seed: 1, lr: 2}\nt:\n  <<: *x\n  seed: 42\n");
  EXPECT_EQ(at(at(root, "t"), "seed").text, "42");
  EXPECT_EQ(at(at(root, "t"), "lr").text, "2");
  EXPECT_EQ(at(root, "t").find("<<"), nullptr);
}

TEST(Yaml, MergeKeepsExplicitKeysThatStandBefore) {
  const YamlNode root = parse("x: &x {seed: 1}\nt:\n  seed: 42\n  <<: *x\n");
  EXPECT_EQ(at(at(root, "t"), "seed").text, "42");
}

TEST(Yaml, EarlierMapOfAMergeListWins) {
  const YamlNode root = parse("x: &x {a: 1}\ny: &y {a: 2, b: 3}\nt:\n  <<: [*x, *y]\n");
  EXPECT_EQ(at(at(root, "t"), "a").text, "1");
  EXPECT_EQ(at(at(root, "t"), "b").text, "3");
}

TEST(Yaml, MergesMayBeNested) {
  const YamlNode root = parse("x: &x {a: 1}\ny: &y\n  <<: *x\n  b: 2\nt:\n  <<: *y\n");
  EXPECT_EQ(at(at(root, "t"), "a").text, "1");
  EXPECT_EQ(at(at(root, "t"), "b").text, "2");
}

TEST(Yaml, MergedValuesKeepTheirPlace) {
  const YamlNode root = parse("x: &x\n  a: 1\nt:\n  <<: *x\n");
  EXPECT_EQ(at(at(root, "t"), "a").place.str(), "f:2:6");
}

TEST(Yaml, BadMergesAreErrors) {
  EXPECT_THAT(fault("t:\n  <<: 5\n"), HasSubstr("<< needs an alias of a map"));
  EXPECT_THAT(fault("t:\n  <<: [5]\n"), HasSubstr("<< merges maps"));
  EXPECT_THAT(fault("x: &x {a: 1}\nt:\n  <<: *x\n  <<: *x\n"), HasSubstr("duplicate key <<"));
}

TEST(Yaml, AQuotedMergeKeyIsNoMerge) {
  EXPECT_NE(parse("x: &x {a: 1}\nt:\n  \"<<\": *x\n").find("t")->value.find("\"<<\""), nullptr);
}

TEST(Yaml, AliasesAreCopies) {
  const YamlNode root = parse("a: &p ./hf\nb: *p\n");
  EXPECT_EQ(at(root, "b").text, "./hf");
}

TEST(Yaml, UndefinedAliasIsAnError) { EXPECT_THAT(fault("a: *nowhere\n"), StartsWith("f:1:")); }
TEST(Yaml, AliasInsideItsAnchorIsAnError) {
  EXPECT_THAT(fault("a: &a [*a]\n"), StartsWith("f:1:"));
}

TEST(Yaml, ExpandedAliasesAreBounded) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    std::string list;
    for (int k = 0; k < 10; ++k) list += fmt::format("{}*a{}", k ? ", " : "", i - 1);
    text += fmt::format("a{0}: &a{0} [{1}]\n", i, list);
  }
  EXPECT_THAT(fault(text), HasSubstr("after aliases are expanded"));
}

TEST(Yaml, TabsInIndentationAreAllReported) {
  EXPECT_EQ(fault("a:\n\tb: 1\n  \tc: 2\n"),
            "f:2:1: tab in indentation; YAML allows only spaces there\n"
            "f:3:3: tab in indentation; YAML allows only spaces there");
}

TEST(Yaml, TabsElsewhereAreFine) {
  EXPECT_EQ(at(parse("a:\t1\n\t\n\t# comment\nb: 2 \t# x\n"), "b").text, "2");
}

TEST(Yaml, OneDocument) {
  EXPECT_THAT(fault("a: 1\n---\nb: 2\n"), HasSubstr("second YAML document"));
  EXPECT_EQ(at(parse("---\na: 1\n...\n"), "a").text, "1");
}

TEST(Yaml, EmptyTextIsNull) {
  for (const char* text : {"", "\n\n", "# comment\n", "---\n", "~\n"}) {
    EXPECT_EQ(parse(text).kind, YamlNode::Kind::kNull) << text;
  }
}

TEST(Yaml, ByteOrderMarkAndCrLf) {
  const YamlNode root = parse(
      "\xEF\xBB\xBF"
      "a: 1\r\nb:\r\n  - x\r\n");
  EXPECT_EQ(at(root, "a").text, "1");
  EXPECT_EQ(at(root, "a").place.str(), "f:1:4");
  EXPECT_EQ(at(root, "b").items[0].text, "x");
}

TEST(Yaml, BytesThatAreNoText) {
  EXPECT_EQ(fault("a: 1\nb: \xff\n"), "f:2:4: not UTF-8 (byte 0xff); save the file as UTF-8");
  EXPECT_THAT(fault(std::string("a: \0\n", 5)), StartsWith("f:1:4: a NUL byte"));
}

TEST(Yaml, UnquotedBracesGetAHint) {
  const std::string star = fault("a:\n  - x\n  - {*}\n");
  EXPECT_THAT(star, StartsWith("f:3:"));
  EXPECT_THAT(star, HasSubstr("quote the pattern"));
  EXPECT_THAT(fault("a: [layers.{0-3}]\n"), HasSubstr("must be quoted"));
}

TEST(Yaml, TagsAndOddKeysAreErrors) {
  EXPECT_THAT(fault("a: !!int \"5\"\n"), HasSubstr("the YAML tag"));
  EXPECT_THAT(fault("? [a, b]\n: 1\n"), HasSubstr("a key must be text, got a list"));
  EXPECT_THAT(fault("~: 1\n"), HasSubstr("a key must be text"));
}

TEST(Yaml, SyntaxErrorsSayWhatIsWrong) {
  EXPECT_THAT(fault("a: 1\nb: [1, 2\nc: 3\n"),
              AllOf(StartsWith("f:"), HasSubstr("a [ is not closed")));
  EXPECT_THAT(fault("a: {x: 1\nb: 3\n"), HasSubstr("a { is not closed"));
  EXPECT_THAT(fault(std::string(20000, '[')), HasSubstr("nested too deeply"));
}

// YAML sees such a slip in the line behind it.
TEST(Yaml, ALineWithoutAColonIsNamed) {
  for (const char* line : {"lr 1e-3", "lr:1e-3"}) {
    EXPECT_THAT(fault(fmt::format("a:\n  {}\n\n  # the style\n  style: cosine\n", line)),
                HasSubstr("; line 2 has no colon and blank between key and value"))
        << line;
  }
  EXPECT_THAT(fault("a: b: c\n"), Not(HasSubstr("has no colon")));
}

TEST(Yaml, AQuoteThatIsNeverClosed) {
  EXPECT_EQ(fault("a: 1\nb: \"out/x\nc: 2\n"), "f:2:4: the quote \" is never closed");
  EXPECT_EQ(fault("b: 'out/x\n"), "f:1:4: the quote ' is never closed");
  EXPECT_EQ(fault("b: \"x\\\"\n"), "f:1:4: the quote \" is never closed");
  const YamlNode root = parse("a: \"it's\"\nb: 'it''s'\nc: \"x\\\"y\"\nd: |\n  \"open\nä: \"ö\"\n");
  EXPECT_EQ(at(root, "a").text, "it's");
  EXPECT_EQ(at(root, "b").text, "it's");
  EXPECT_EQ(at(root, "c").text, "x\"y");
  EXPECT_EQ(at(root, "d").text, "\"open\n");
  EXPECT_EQ(at(root, "ä").text, "ö");
}

TEST(Yaml, FilesOfAnotherKind) {
  EXPECT_THAT(fault("{\"id\": 1}\n{\"id\": 2}\n"), HasSubstr("looks like JSON Lines"));
  EXPECT_THAT(fault("a: 1\rb: 2\r"), HasSubstr("the lines end in CR alone"));
  EXPECT_THAT(fault(std::string("\x10\0\0\0\xbc", 5)), HasSubstr("this is not a text file"));
}

TEST(Yaml, LongValuesAreShortenedInMessages) {
  const std::string long_text(500, 'x');
  EXPECT_LT(parse("a: " + long_text + "\n").entries[0].value.describe().size(), 100u);
}

}  // namespace
}  // namespace shardloom::config
