#include "shardloom/base/json.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "shardloom/base/files.h"

namespace shardloom {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_json(text, "f.json", ExitCode::kData);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "no error";
}

TEST(ParseJsonTest, ReadsNestedValues) {
  const Json value =
      parse_json(R"({"a": [1, 2.5, {"b": null}], "c": "\u4e2d"})", "f", ExitCode::kData);
  EXPECT_EQ(value["a"][1], 2.5);
  EXPECT_TRUE(value["a"][2]["b"].is_null());
  EXPECT_EQ(value["c"], "中");
}

TEST(ParseJsonTest, NamesLineAndColumn) {
  EXPECT_EQ(error_of("x"), "f.json:1:1: not valid JSON");
  EXPECT_EQ(error_of(R"({"a": x})"), "f.json:1:7: not valid JSON");
  EXPECT_EQ(error_of("{\n  \"a\": 1,\n  \"b\" 2\n}"), "f.json:3:7: not valid JSON");
}

TEST(ParseJsonTest, RefusesCutAndTrailingText) {
  EXPECT_EQ(error_of("").substr(0, 9), "f.json:1:");
  EXPECT_EQ(error_of(R"({"a": 1)").substr(0, 9), "f.json:1:");
  EXPECT_EQ(error_of("{}\n{}"), "f.json:2:1: not valid JSON");
  EXPECT_EQ(error_of(std::string_view("{}\n\0{", 5)), "f.json:2:1: not valid JSON");
}

TEST(ParseJsonTest, RefusesInvalidUtf8) {
  EXPECT_EQ(error_of("[\"a\xFF\"]"), "f.json:1:4: not valid JSON");
}

TEST(ParseJsonTest, RefusesDuplicateKeysOfOneObject) {
  EXPECT_EQ(error_of(R"({"a": 1, "b": {"a": 2}, "a": 3})"), "f.json: duplicate JSON key \"a\"");
  EXPECT_EQ(error_of(R"([{"a": {"k": 1, "k": 2}}])"), "f.json: duplicate JSON key \"k\"");
}

TEST(ParseJsonTest, RefusesNumbersBeyondDouble) {
  EXPECT_EQ(error_of(R"({"a": 9e98988})"),
            "f.json: not valid JSON: a number is too large for a double");
}

TEST(ParseJsonTest, AllowsOneKeyInSeveralObjects) {
  EXPECT_EQ(error_of(R"([{"a": {"a": 1}}, {"a": 2}])"), "no error");
}

TEST(ReadJsonFileTest, ReportsAMissingFileWithTheCallersCode) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "no_such_file.json";
  try {
    read_json_file(path, ExitCode::kCheckpoint);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
  }
}

TEST(ReadJsonFileTest, ReadsWhatWasWritten) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "json_test.json";
  write_file_atomically(path, R"({"a": 1})");
  EXPECT_EQ(read_json_file(path, ExitCode::kData)["a"], 1);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace shardloom
