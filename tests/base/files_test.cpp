#include "shardloom/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <system_error>

namespace shardloom {
namespace {

using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Path of a new file with this content.
  std::filesystem::path make_file(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  // Text of the system_error that `action` throws.
  template <typename Action>
  std::string error_of(Action action) {
    try {
      action();
    } catch (const std::system_error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path folder_;
};

TEST_F(FilesTest, MapsTheBytesAsTheyAre) {
  const std::string content("a\0b\r\n\xFF", 6);
  const MappedFile file(make_file("x", content));
  EXPECT_EQ(file.view(), content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
}

TEST_F(FilesTest, MapsAnEmptyFile) {
  const MappedFile file(make_file("empty", ""));
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(file.view(), "");
}

TEST_F(FilesTest, MovesAMapping) {
  MappedFile first(make_file("x", "content"));
  const char* data = first.data();
  MappedFile second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.view(), "content");

  MappedFile third(make_file("y", "other"));
  third = std::move(second);
  EXPECT_EQ(third.view(), "content");
}

TEST_F(FilesTest, StillReadsDroppedPages) {
  const std::string content(100'000, 'x');
  const MappedFile file(make_file("x", content));
  file.drop_pages(10, 90'000);
  file.drop_pages(0, 1);
  EXPECT_EQ(file.view(), content);
}

TEST_F(FilesTest, NamesThePathThatCannotBeRead) {
  const auto missing = folder_ / "missing.json";
  EXPECT_THAT(error_of([&] { MappedFile file(missing); }),
              HasSubstr("cannot open " + missing.string()));
  EXPECT_THAT(error_of([&] { read_file(missing); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { MappedFile file(folder_); }), HasSubstr("Is a directory"));
}

TEST_F(FilesTest, WritesAndReplacesWithoutATrace) {
  const auto path = folder_ / "out";
  write_file_atomically(path, "first");
  write_file_atomically(path, std::string_view("se\0cond", 7));
  EXPECT_EQ(read_file(path), std::string("se\0cond", 7));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.tmp"));
}

TEST_F(FilesTest, AFailedWriteLeavesTheOldFile) {
  const auto path = make_file("out", "old");
  std::filesystem::create_directory(folder_ / "out.tmp");  // stands where the temporary file would
  EXPECT_THAT(error_of([&] { write_file_atomically(path, "new"); }), HasSubstr("out.tmp"));
  EXPECT_EQ(read_file(path), "old");
}

TEST_F(FilesTest, AFailedRenameLeavesNoTemporaryFile) {
  const auto path = folder_ / "taken";
  std::filesystem::create_directories(path / "by a folder");
  EXPECT_THAT(error_of([&] { write_file_atomically(path, "new"); }), HasSubstr("taken"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "taken.tmp"));
}

TEST_F(FilesTest, RefusesAMissingFolder) {
  const auto path = folder_ / "no" / "out";
  EXPECT_THAT(error_of([&] { write_file_atomically(path, "x"); }), HasSubstr(path.string()));
}

TEST(ReadFile, FilesThatSayTheyAreEmpty) {
  EXPECT_EQ(read_file("/proc/sys/kernel/random/boot_id").size(), 37u);
  EXPECT_GT(read_file("/proc/self/maps").size(), 4096u);
  EXPECT_EQ(read_file("/dev/null"), "");
}

TEST_F(FilesTest, SyncsFilesAndFolders) {
  sync_to_disk(make_file("x", "x"));
  sync_to_disk(folder_);
  EXPECT_THAT(error_of([&] { sync_to_disk(folder_ / "missing"); }), HasSubstr("missing"));
}

TEST(ForeignContentTest, RecognisesWhatUsersMistakeForWeightsAndImages) {
  EXPECT_THAT(describe_foreign_content("version https://git-lfs.github.com/spec/v1\noid"),
              HasSubstr("git-lfs"));
  EXPECT_THAT(describe_foreign_content("<!DOCTYPE html><html>"), HasSubstr("HTML"));
  EXPECT_THAT(describe_foreign_content("PK\x03\x04rest"), HasSubstr("zip"));
  EXPECT_THAT(describe_foreign_content("\x80\x02}q"), HasSubstr("pickle"));
  EXPECT_EQ(describe_foreign_content("\x89PNG\r\n"), "");
  EXPECT_EQ(describe_foreign_content(""), "");
}

}  // namespace
}  // namespace shardloom
