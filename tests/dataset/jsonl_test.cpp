#include "shardloom/data/jsonl.h"

#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<Json> records_of(const JsonlFiles& files) {
  std::vector<Json> records;
  for (int64_t i = 0; i < files.size(); ++i) {
    records.push_back(parse_record_line(files.line(i), files.place(i)));
  }
  return records;
}

class JsonlVariant : public testing::TestWithParam<std::string> {};

TEST_P(JsonlVariant, ReadsTheSameThreeRecords) {
  auto clean = records_of(JsonlFiles({test_data("DATA-01/clean.jsonl")}));
  const auto records = records_of(JsonlFiles({test_data("DATA-01/" + GetParam() + ".jsonl")}));
  ASSERT_EQ(records.size(), 3);
  if (GetParam() == "u2028_inside") {
    clean[0]["conversations"][1]["value"] = "Blue.\u2028\u0085End.";
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i]["id"], clean[i]["id"]);
    EXPECT_EQ(records[i].value("image", ""), clean[i].value("image", ""));
    ASSERT_EQ(records[i]["conversations"].size(), clean[i]["conversations"].size());
    for (size_t turn = 0; turn < clean[i]["conversations"].size(); ++turn) {
      EXPECT_EQ(records[i]["conversations"][turn]["from"], clean[i]["conversations"][turn]["from"]);
      EXPECT_EQ(records[i]["conversations"][turn]["value"],
                clean[i]["conversations"][turn]["value"]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Data01,
                         JsonlVariant,
                         testing::Values("clean",
                                         "bom",
                                         "crlf",
                                         "bom_crlf_no_final_newline",
                                         "blank_lines",
                                         "u2028_inside",
                                         "escaped_unicode",
                                         "key_order_and_extras"));

struct BadLine {
  const char* name;
  std::string line;   // the second of three
  std::string error;  // after "file:2"; empty = legal
};

class JsonlBadLine : public testing::TestWithParam<BadLine> {};

// The case of invalid UTF-8, surrogates and cut lines: 14 files of three lines, the second one
// altered.
TEST_P(JsonlBadLine, IsNamedByLineAndByteAndLeavesTheOthersAlone) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.jsonl", "{\"id\": 1}\n" + GetParam().line + "\n{\"id\": 3}\n");
  const JsonlFiles files({path});
  ASSERT_EQ(files.size(), 3);
  EXPECT_EQ(parse_record_line(files.line(0), files.place(0))["id"], 1);
  EXPECT_EQ(parse_record_line(files.line(2), files.place(2))["id"], 3);
  if (GetParam().error.empty()) {
    EXPECT_NO_THROW(parse_record_line(files.line(1), files.place(1)));
  } else {
    EXPECT_THAT(data_error_of([&] { parse_record_line(files.line(1), files.place(1)); }),
                StartsWith(path.string() + ":2" + GetParam().error));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Data02,
    JsonlBadLine,
    testing::Values(
        BadLine{"byte_ff", "{\"t\": \"a\xFF\"}", ":9: invalid UTF-8 (byte 0xFF)"},
        BadLine{"latin1", "{\"t\": \"caf\xE9\"}", ":11: invalid UTF-8 (byte 0xE9)"},
        BadLine{"overlong", "{\"t\": \"\xC0\x80\"}", ":8: invalid UTF-8 (byte 0xC0)"},
        BadLine{"encoded_surrogate", "{\"t\": \"\xED\xA0\x80\"}", ":8: invalid UTF-8 (byte 0xED)"},
        BadLine{"cut_character", "{\"t\": \"\xE5\x9B", ":8: invalid UTF-8 (byte 0xE5)"},
        BadLine{"lone_high", R"({"t": "\ud800"})",
                ":14: not valid JSON: invalid string: surrogate"},
        BadLine{"lone_low", R"({"t": "\udc00"})", ":13: not valid JSON: invalid string: surrogate"},
        BadLine{"high_then_letter", R"({"t": "\ud83dA"})",
                ":14: not valid JSON: invalid string: surrogate"},
        BadLine{"surrogate_pair", R"({"t": "\ud83d\ude00"})", ""},
        BadLine{"cut_in_string", R"({"t": "abc)",
                ":11: not valid JSON: invalid string: missing closing quote; the line is cut"},
        BadLine{"cut_after_value", R"({"t": "abc")",
                ":12: not valid JSON: unexpected end of input; expected '}'; the line is cut"},
        BadLine{"two_objects", R"({"t": 1}{"t": 2})", ":9: not valid JSON"},
        BadLine{"zero_byte", std::string("{\"t\": 1}\0{\"t\": 2}", 17),
                ":9: not valid JSON: a zero byte"},
        BadLine{"raw_control_character", "{\"t\": \"a\tb\"}",
                ":9: not valid JSON: invalid string: control character"},
        BadLine{"duplicate_key", R"({"t": 1, "t": 2})", ": duplicate key \"t\""}),
    [](const auto& info) { return info.param.name; });

TEST(Jsonl, CutLastLineIsNotLost) {
  const TemporaryFolder folder;
  const JsonlFiles files({folder.write("x.jsonl", "{\"id\": 1}\n{\"id\": ")});
  ASSERT_EQ(files.size(), 2);
  EXPECT_THAT(data_error_of([&] { parse_record_line(files.line(1), files.place(1)); }),
              HasSubstr("x.jsonl:2:8: not valid JSON"));
}

TEST(Jsonl, NestedDuplicatesAreFoundAndEqualKeysOfDifferentObjectsAreNot) {
  EXPECT_NO_THROW(parse_record_line(R"({"a": [{"k": 1}, {"k": 2}], "b": {"k": {"k": 1}}})", "x:1"));
  EXPECT_THROW(parse_record_line(R"({"a": [{"k": 1}, {"k": 2, "k": 3}]})", "x:1"), DataError);
}

TEST(Jsonl, MessageOfALongBadLineStaysShort) {
  const std::string line = R"({"t": ")" + std::string(100000, 'x');
  EXPECT_LT(data_error_of([&] { parse_record_line(line, "x:1"); }).size(), 300);
}

TEST(Jsonl, NumberOutOfRangeIsADataError) {
  EXPECT_THAT(data_error_of([] { parse_record_line(R"({"t": 1e999})", "x:1"); }),
              StartsWith("x:1: not valid JSON"));
}

TEST(Jsonl, ConcatenatesFilesAndKeepsTheirLineNumbers) {
  const TemporaryFolder folder;
  const auto a = folder.write("a.jsonl", "\n{\"id\": 1}\n\n{\"id\": 2}");
  const auto empty = folder.write("empty.jsonl", "");
  const auto b = folder.write("b.jsonl", "\xEF\xBB\xBF{\"id\": 3}\r\n   \t\r\n{\"id\": 4}\r\n");
  const JsonlFiles files({a, empty, b});
  ASSERT_EQ(files.size(), 4);
  EXPECT_EQ(files.place(0), a.string() + ":2");
  EXPECT_EQ(files.place(1), a.string() + ":4");
  EXPECT_EQ(files.place(2), b.string() + ":1");
  EXPECT_EQ(files.place(3), b.string() + ":3");
  EXPECT_EQ(files.line(2), "{\"id\": 3}");
}

TEST(Jsonl, MebibyteLineIsOneLine) {
  const TemporaryFolder folder;
  std::string big = R"({"id": "big", "conversations": [{"from": "human", "value": ")";
  for (int i = 0; i < 524288; ++i) big += "x ";
  big += R"("}, {"from": "gpt", "value": "ok"}]})";
  const JsonlFiles files({folder.write("x.jsonl", big + "\n{\"id\": \"small\"}\n")});
  ASSERT_EQ(files.size(), 2);
  const Json record = parse_record_line(files.line(0), files.place(0));
  EXPECT_EQ(record["conversations"][0]["value"].get<std::string>().size(), 1048576);
  EXPECT_EQ(parse_record_line(files.line(1), files.place(1))["id"], "small");
}

TEST(Jsonl, LineBeyondTheLimitIsRefusedWithItsNumber) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.jsonl", "{}\n{");
  std::filesystem::resize_file(path, kMaxLineBytes + 100);  // sparse: zeros after the brace
  const JsonlFiles files({path});
  ASSERT_EQ(files.size(), 2);
  EXPECT_THAT(data_error_of([&] { files.line(1); }), HasSubstr("x.jsonl:2: the line has 16.0 MiB"));
}

struct WrongFile {
  const char* name;
  std::string content;
  std::string error;
};

class JsonlWrongFile : public testing::TestWithParam<WrongFile> {};

TEST_P(JsonlWrongFile, IsNamed) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.json", GetParam().content);
  EXPECT_THAT(data_error_of([&] { JsonlFiles files({path}); }),
              StartsWith(path.string() + " is " + GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    JsonlWrongFile,
    testing::Values(
        WrongFile{"array", "\xEF\xBB\xBF [\n{\"id\": 1}]", "one JSON array, not JSON lines"},
        WrongFile{"gzip", "\x1F\x8B\x08", "a gzip file"},
        WrongFile{"utf16", std::string("\xFF\xFE{\0", 4), "UTF-16 text"},
        WrongFile{"lfs", "version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer"}),
    [](const auto& info) { return info.param.name; });

TEST(Jsonl, ArrayErrorSaysHowToConvert) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.json", "[{\"id\": 1}]");
  EXPECT_THAT(
      data_error_of([&] { JsonlFiles files({path}); }),
      HasSubstr("jq -c '.[]' " + path.string() + " > " + (folder.path() / "x.jsonl").string()));
  // The shell would empty the file before jq reads it.
  const auto named_so = folder.write("y.jsonl", "[{\"id\": 1}]");
  EXPECT_THAT(data_error_of([&] { JsonlFiles files({named_so}); }),
              HasSubstr(" > " + (folder.path() / "y.lines.jsonl").string()));
}

TEST(Jsonl, MissingFileAndFolderAreDataErrors) {
  const TemporaryFolder folder;
  EXPECT_THAT(data_error_of([&] { JsonlFiles files({folder.path() / "absent.jsonl"}); }),
              HasSubstr("absent.jsonl"));
  EXPECT_THAT(data_error_of([&] { JsonlFiles files({folder.path()}); }), HasSubstr("directory"));
}

TEST(Jsonl, FingerprintFollowsTheContentAndNotTheFolder) {
  const TemporaryFolder folder;
  const std::string text = "{\"id\": 1}\n{\"id\": 2}\n";
  const JsonlFiles one({folder.write("a/x.jsonl", text)});
  const JsonlFiles same({folder.write("b/x.jsonl", text)});
  const JsonlFiles other({folder.write("c/x.jsonl", "{\"id\": 1}\n{\"id\": 3}\n")});
  EXPECT_EQ(one.fingerprint(), same.fingerprint());
  EXPECT_NE(one.fingerprint(), other.fingerprint());
  EXPECT_THAT(one.fingerprint(), Not(HasSubstr(folder.path().string())));
}

}  // namespace
}  // namespace shardloom::data
