// A checkpoint of two ranks and what can happen to it: each damage is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "tests/dcp/samples.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint::dcp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DcpDamaged : public ::testing::Test {
 protected:
  DcpDamaged() {
    fs::copy(kData / "ranks2" / "saved_on_2", path());
    // The fixture may be read-only, and the copy is then too.
    for (const auto& entry : fs::directory_iterator(path())) {
      fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
    }
  }

  fs::path path() const { return folder_.path() / "checkpoint"; }

  void change(const char* file, const std::function<void(std::string&)>& edit) const {
    std::string content = read_file(path() / file);
    edit(content);
    write_file_atomically(path() / file, content);
  }

  std::string open_error() const {
    return error_of([&] { Reader reader(path()); });
  }

  TemporaryFolder folder_;
};

TEST_F(DcpDamaged, WholeOneReadsAsWritten) {
  const Json expected = read_json_file(kData / "ranks2" / "expected.json", ExitCode::kData);
  const Reader reader(path(), {.verify_crc = true});
  size_t tensors = 0;
  for (const auto& [key, json] : expected.at("full_values").items()) {
    if (!json.is_object()) continue;
    ++tensors;
    const std::string name = "model." + key;
    const TrueTensor truth = true_tensor(json);
    EXPECT_EQ(reader.read_tensor(name), truth.bytes) << name;
    std::vector<std::vector<std::vector<int64_t>>> chunks;
    for (const TensorChunk& chunk : reader.tensor(name).chunks) {
      chunks.push_back({chunk.box.offsets, chunk.box.sizes});
    }
    EXPECT_EQ(Json(chunks), expected.at("chunks(offsets,sizes)").at(name)) << name;
  }
  EXPECT_EQ(tensors, 6U);
}

TEST_F(DcpDamaged, FileShortByTenBytes) {
  change("__1_0.distcp", [](std::string& content) { content.resize(content.size() - 10); });
  EXPECT_THAT(open_error(), AllOf(HasSubstr("__1_0.distcp has 11910 bytes"), HasSubstr("needs"),
                                  HasSubstr("cut short")));
}

TEST_F(DcpDamaged, FileCutInHalf) {
  change("__0_0.distcp", [](std::string& content) { content.resize(content.size() / 2); });
  EXPECT_THAT(open_error(), HasSubstr("__0_0.distcp has 3154 bytes"));
}

TEST_F(DcpDamaged, FileMissing) {
  fs::remove(path() / "__1_0.distcp");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("1 of its 2 files missing: __1_0.distcp (needed for "),
                                  HasSubstr("more)")));
}

TEST_F(DcpDamaged, MetadataMissing) {
  fs::remove(path() / kMetadataName);
  EXPECT_THAT(open_error(), AllOf(HasSubstr("not a complete checkpoint: .metadata is missing"),
                                  HasSubstr("it is written last")));
}

TEST_F(DcpDamaged, MetadataCut) {
  change(kMetadataName, [](std::string& content) { content.resize(content.size() - 30); });
  EXPECT_THAT(open_error(), AllOf(HasSubstr(".metadata: damaged or unsupported pickle: byte 2: "
                                            "FRAME: a frame of 2618 bytes, 2588 are left")));
}

TEST_F(DcpDamaged, MetadataEmpty) {
  change(kMetadataName, [](std::string& content) { content.clear(); });
  EXPECT_THAT(open_error(), HasSubstr(".metadata is empty (0 bytes)"));
}

TEST_F(DcpDamaged, EveryCutOfTheMetadataIsAnError) {
  const std::string whole = read_file(path() / kMetadataName);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of([&] { parse_metadata(whole.substr(0, length), "cut"); }), "no error")
        << length;
  }
}

TEST_F(DcpDamaged, StrayFileIsNoBusinessOfOurs) {
  write_file_atomically(path() / "__2_0.distcp", "junk");
  EXPECT_EQ(open_error(), "no error");
}

TEST_F(DcpDamaged, FlippedBitIsFoundByItsChecksum) {
  // Inside the values of w_uneven.
  change("__0_0.distcp", [](std::string& content) { content[709] ^= 0x40; });
  const Reader reader(path(), {.verify_crc = true});
  EXPECT_THAT(error_of([&] { reader.read_tensor("model.w_uneven"); }),
              AllOf(HasSubstr("__0_0.distcp: \"model.w_uneven\" at byte 0"), HasSubstr("data/0"),
                    HasSubstr("CRC-32")));
  std::vector<std::string> bad;
  reader.verify([&](const std::string& name, const std::string&) { bad.push_back(name); });
  EXPECT_EQ(bad, std::vector<std::string>{"model.w_uneven"});
  // Rank 1's rows are not touched by it.
  std::string rows(24, '\0');
  reader.read_rows("model.w_uneven", 3, 2, {rows.data(), rows.size(), DType::kF32, {}});
}

// Flips one bit of every seventh byte of a rank's file in turn: an error, or a checkpoint that
// reads as before.
TEST_F(DcpDamaged, NoFlippedBitChangesAValueInSilence) {
  const std::string whole = read_file(path() / "__0_0.distcp");
  const std::vector<std::string> names = {"model.w_uneven", "model.w_one_row", "model.w_even_bf16",
                                          "model.experts.gate_up_proj"};
  std::map<std::string, std::string> before;
  for (const std::string& name : names) before[name] = Reader(path()).read_tensor(name);
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    folder_.write("checkpoint/__0_0.distcp", damaged);
    const Reader reader(path(), {.verify_crc = true});
    for (const std::string& name : names) {
      error_of([&] { EXPECT_EQ(reader.read_tensor(name), before[name]) << name << " " << at; });
    }
  }
}

TEST(DcpFolder, SaysWhatIsNotACheckpoint) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { Reader reader(folder.path() / "nowhere"); }),
              HasSubstr("nowhere is not a folder"));
  EXPECT_THAT(error_of([&] { Reader reader(folder.path()); }),
              HasSubstr("not a complete checkpoint: .metadata is missing"));
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
