// Reader of Hugging Face folders: sharded folders that are whole, broken or ambiguous.
#include "shardloom/checkpoint/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kCases =
    std::filesystem::path(SHARDLOOM_TEST_DATA) / "checkpoint" / "hf_folders";
constexpr const char* kFirstShard = "model-00001-of-00002.safetensors";
constexpr const char* kSecondShard = "model-00002-of-00002.safetensors";

std::string open_error(const std::filesystem::path& path) {
  try {
    HfFolder::open(path);
  } catch (const CheckpointError& error) {
    return error.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    return error.what();
  }
  return "no error";
}

std::vector<float> floats(const HfFolder& folder, const std::string& name) {
  const std::string_view bytes = folder.get(name).data();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<std::string> names(const HfFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : folder.tensors()) names.push_back(entry.first);
  return names;
}

TEST(HfFolderCases, AcceptsAndRefusesAsListed) {
  const Json expected = read_json_file(kCases / "expected.json", ExitCode::kData);
  ASSERT_EQ(expected.size(), 9U);
  for (const auto& [name, right] : expected.items()) {
    const std::string text = right.get<std::string>();
    const bool accepted = open_error(kCases / name) == "no error";
    const bool should = text.starts_with("accept") || text.starts_with("warning");
    EXPECT_EQ(accepted, should) << name << ": " << open_error(kCases / name);
  }
}

TEST(HfFolder, ReadsAllShards) {
  const HfFolder folder = HfFolder::open(kCases / "ok");
  EXPECT_THAT(names(folder), ElementsAre("a", "b", "c"));
  EXPECT_THAT(floats(folder, "a"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(floats(folder, "b"), ElementsAre(5, 6));
  EXPECT_THAT(floats(folder, "c"), ElementsAre(7));
  EXPECT_EQ(folder.get("b").file->path().filename(), kSecondShard);
  EXPECT_EQ(folder.total_bytes(), 28U);
  EXPECT_THAT(folder.warnings(), IsEmpty());
}

TEST(HfFolder, UnknownTensorGivesTheNearest) {
  const HfFolder folder = HfFolder::open(kCases / "ok");
  EXPECT_EQ(folder.find("x.weight"), nullptr);
  EXPECT_THROW(folder.get("x.weight"), CheckpointError);
}

TEST(HfFolder, MissingFileNamesItsTensors) {
  EXPECT_THAT(open_error(kCases / "missing_file"),
              AllOf(HasSubstr(kIndexFileName), HasSubstr(kSecondShard), HasSubstr("not there"),
                    HasSubstr("needed for b, c")));
}

TEST(HfFolder, TensorInAnotherShardIsAnError) {
  EXPECT_THAT(open_error(kCases / "wrong_shard"),
              HasSubstr(fmt::format("b is not in {} but in {}", kSecondShard, kFirstShard)));
}

TEST(HfFolder, TensorInNoShardIsAnError) {
  EXPECT_THAT(open_error(kCases / "key_not_in_any_file"),
              HasSubstr(fmt::format("c is not in {}", kSecondShard)));
}

TEST(HfFolder, StrayTensorIsReportedAndNotLoaded) {
  const HfFolder folder = HfFolder::open(kCases / "extra_key_in_file");
  EXPECT_THAT(names(folder), ElementsAre("a", "b", "c"));
  ASSERT_EQ(folder.stray_tensors().size(), 1U);
  EXPECT_EQ(folder.stray_tensors()[0].name, "stale");
  EXPECT_EQ(folder.stray_tensors()[0].file.filename(), kFirstShard);
  EXPECT_THAT(folder.warnings(), ElementsAre(AllOf(HasSubstr(kFirstShard), HasSubstr("stale"))));
}

TEST(HfFolder, SingleFileBesideAnIndexIsAmbiguous) {
  EXPECT_THAT(open_error(kCases / "single_and_index"),
              AllOf(HasSubstr(kSingleFileName), HasSubstr(kIndexFileName), HasSubstr("remove")));
}

TEST(HfFolder, IndexMayNameTheSingleFile) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kCases / "single_and_index" / kSingleFileName,
                             folder.path() / kSingleFileName);
  folder.write(kIndexFileName, R"({"weight_map":{"a":"model.safetensors"}})");
  EXPECT_THAT(names(HfFolder::open(folder.path())), ElementsAre("a"));
}

TEST(HfFolder, ShardTheIndexSkipsIsReported) {
  const HfFolder folder = HfFolder::open(kCases / "index_subset");
  EXPECT_THAT(names(folder), ElementsAre("a"));
  EXPECT_THAT(folder.warnings(),
              ElementsAre(AllOf(HasSubstr(kSecondShard), HasSubstr("not used"))));
}

TEST(HfFolder, BrokenIndexIsNamed) {
  EXPECT_THAT(open_error(kCases / "empty_weight_map"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(open_error(kCases / "index_not_json"),
              AllOf(HasSubstr(kIndexFileName), HasSubstr("not valid JSON")));
}

struct BadIndex {
  const char* text;
  const char* cause;
};

class HfFolderBadIndex : public ::testing::TestWithParam<BadIndex> {};

TEST_P(HfFolderBadIndex, IsRefused) {
  const TemporaryFolder folder;
  folder.write(kIndexFileName, GetParam().text);
  EXPECT_THAT(open_error(folder.path()),
              AllOf(HasSubstr(kIndexFileName), HasSubstr(GetParam().cause)));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    HfFolderBadIndex,
    ::testing::Values(
        BadIndex{"[]", "no object \"weight_map\""},
        BadIndex{"{}", "no object \"weight_map\""},
        BadIndex{R"({"weight_map":[]})", "no object \"weight_map\""},
        BadIndex{R"({"weight_map":{"a":1}})", "not a file name"},
        BadIndex{R"({"weight_map":{"a":"../x.safetensors"}})", "of the same folder"},
        BadIndex{R"({"weight_map":{"a":"/etc/x.safetensors"}})", "of the same folder"},
        BadIndex{R"({"weight_map":{"a":""}})", "of the same folder"},
        BadIndex{R"({"weight_map":{"a":"model.bin"}})", "of the same folder"},
        BadIndex{R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "duplicate"},
        BadIndex{R"({"weight_map":{"a":1e999}})", "not valid JSON"},
        BadIndex{"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"}));

TEST(HfFolder, ReadsASingleFile) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kCases / "single_and_index" / kSingleFileName,
                             folder.path() / kSingleFileName);
  EXPECT_TRUE(is_hf_folder(folder.path()));
  EXPECT_THAT(names(HfFolder::open(folder.path())), ElementsAre("a", "b", "c"));
}

TEST(HfFolder, FollowsLinksAndNamesBrokenOnes) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(kCases / "single_and_index" / kSingleFileName,
                                  folder.path() / kSingleFileName);
  EXPECT_EQ(names(HfFolder::open(folder.path())).size(), 3U);
  std::filesystem::remove(folder.path() / kSingleFileName);
  std::filesystem::create_symlink("gone", folder.path() / kSingleFileName);
  EXPECT_THAT(open_error(folder.path()), HasSubstr(kSingleFileName));

  const TemporaryFolder sharded;
  std::filesystem::create_symlink("gone", sharded.path() / kFirstShard);
  sharded.write(kIndexFileName, fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", kFirstShard));
  EXPECT_THAT(open_error(sharded.path()), HasSubstr("a link that leads nowhere"));
}

TEST(HfFolder, SaysWhatAFolderWithoutWeightsIs) {
  const TemporaryFolder folder;
  EXPECT_FALSE(is_hf_folder(folder.path()));
  EXPECT_THAT(open_error(folder.path()), HasSubstr("it holds nothing"));
  folder.write("config.json", "{}");
  EXPECT_THAT(open_error(folder.path()), HasSubstr("it holds config.json"));
  folder.write("latest_checkpointed_iteration.txt", "release");
  EXPECT_THAT(open_error(folder.path()), HasSubstr("looks like a DCP checkpoint"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(open_error(folder.path()),
              AllOf(HasSubstr("only pytorch_model.bin"), HasSubstr("safe_serialization")));
  folder.write(kFirstShard, "x");
  EXPECT_THAT(open_error(folder.path()),
              AllOf(HasSubstr(kFirstShard), HasSubstr("was the index left out")));
}

TEST(HfFolder, RefusesPathsThatAreNoFolder) {
  EXPECT_THAT(open_error(kCases / "nowhere"), HasSubstr("No such file"));
  EXPECT_THAT(open_error(kCases / "ok" / kFirstShard), HasSubstr("give the folder that holds it"));
}

// Root may read everything, so a test that runs as root takes another user's rights meanwhile.
class NotRoot {
 public:
  NotRoot() : was_root_(::geteuid() == 0) {
    if (was_root_ && ::seteuid(65534) != 0) throw std::runtime_error("seteuid failed");
  }
  ~NotRoot() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  bool was_root_;
};

TEST(HfFolder, UnreadableWeightsAreNamed) {
  const TemporaryFolder folder;
  const auto file = folder.write(kSingleFileName, "x");
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(file, std::filesystem::perms::none);
  const NotRoot not_root;
  EXPECT_THAT(open_error(folder.path()),
              AllOf(HasSubstr(kSingleFileName), HasSubstr("Permission denied")));
}

TEST(HfFolder, UnreadableFolderIsNamed) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "model");
  std::filesystem::permissions(folder.path(), std::filesystem::perms::none);
  const NotRoot not_root;
  EXPECT_THAT(open_error(folder.path() / "model"),
              AllOf(HasSubstr(folder.path().string()), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace shardloom::checkpoint
