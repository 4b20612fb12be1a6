// Descriptions of checkpoints of each kind, and their verification.
#include "shardloom/checkpoint/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/files.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "shardloom/checkpoint/save_root.h"
#include "tests/dcp/samples.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;
using dcp::error_of;
using dcp::kData;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void write_two_tensors(const fs::path& path) {
  SafetensorsWriter writer(path, {{"b", DType::kBF16, {2, 2}}, {"a", DType::kF32, {3}}});
  writer.write("a", "abcdabcdabcd");
  writer.write("b", "abababab");
  writer.finish();
}

TEST(Inspect, DcpFolderWithItsChunks) {
  const Description description = describe_checkpoint(kData / "samples" / "r2_dsd");
  EXPECT_EQ(description.kind, "DCP folder");
  EXPECT_EQ(description.tensors.size(), 24U);
  const auto& tensors = description.tensors;
  const auto found = std::find_if(tensors.begin(), tensors.end(), [](const DescribedTensor& t) {
    return t.name == "model.emb.weight";
  });
  ASSERT_NE(found, tensors.end());
  EXPECT_EQ(found->bytes, 24U);
  ASSERT_EQ(found->pieces.size(), 2U);
  EXPECT_EQ(found->pieces[1].file, "__1_0.distcp");
  EXPECT_EQ(found->pieces[1].offsets, (std::vector<int64_t>{2, 0}));
  const std::string text = description_text(description);
  EXPECT_THAT(text, AllOf(HasSubstr("BF16  [3, 4]"), HasSubstr("24 B"),
                          HasSubstr("__0_0.distcp [2, 4] at [0, 0], __1_0.distcp [1, 4] at [2, 0]"),
                          HasSubstr("(0.9, 0.999)"), HasSubstr("DCP folder, 24 tensors")));
}

TEST(Inspect, JsonHoldsTheSame) {
  const Json json =
      Json::parse(description_json(describe_checkpoint(kData / "ranks2" / "saved_on_2")));
  EXPECT_EQ(json.at("total_bytes"), 60 + 8 + 48 + 96 + 24 + 4);
  EXPECT_EQ(json.at("values").at("model.note"), "'two ranks'");
  const Json& tensor = json.at("tensors").at(5);
  EXPECT_EQ(tensor.at("name"), "model.w_uneven");
  EXPECT_EQ(tensor.at("dtype"), "F32");
  EXPECT_EQ(tensor.at("shape"), Json({5, 3}));
  EXPECT_EQ(tensor.at("pieces").at(1),
            Json({{"file", "__1_0.distcp"}, {"offsets", {3, 0}}, {"sizes", {2, 3}}}));
}

TEST(Inspect, SafetensorsFileAndHfFolder) {
  const TemporaryFolder folder;
  write_two_tensors(folder.path() / "model.safetensors");
  const Description file = describe_checkpoint(folder.path() / "model.safetensors");
  EXPECT_EQ(file.kind, "safetensors file");
  EXPECT_EQ(file.total_bytes, 20U);
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(file.values.at(0).name, "format");
  const Description hf = describe_checkpoint(folder.path());
  EXPECT_EQ(hf.kind, "Hugging Face folder");
  EXPECT_EQ(hf.total_bytes, 20U);
  EXPECT_EQ(hf.tensors[1].pieces.at(0).file, "model.safetensors");
}

TEST(Inspect, SaysWhatItIsNot) {
  const TemporaryFolder folder;
  const auto problem = [&] { return error_of([&] { describe_checkpoint(folder.path()); }); };
  EXPECT_THAT(error_of([&] { describe_checkpoint(folder.path() / "x"); }),
              HasSubstr("x does not exist"));
  EXPECT_THAT(problem(), HasSubstr("has neither model.safetensors nor"));
  folder.write("__0_0.distcp", "");
  EXPECT_THAT(problem(), HasSubstr("not a complete checkpoint"));
  write_latest(folder.path(), 7);
  EXPECT_THAT(problem(), AllOf(HasSubstr("iter_0000007"), HasSubstr("does not exist")));
}

TEST(Inspect, FolderOfARunStandsForItsLatestCheckpoint) {
  const TemporaryFolder root;
  const fs::path latest = root.path() / "iter_0000007";
  fs::copy(kData / "ranks2" / "saved_on_2", latest);
  write_latest(root.path(), 7);
  const Description description = describe_checkpoint(root.path());
  EXPECT_EQ(description.path, latest);
  EXPECT_EQ(description.tensors.size(), 6U);
  EXPECT_EQ(verify_checkpoint(root.path(), [](const auto&, const auto& error) { FAIL() << error; }),
            verify_checkpoint(latest, [](const auto&, const auto& error) { FAIL() << error; }));
}

TEST(Verify, ComparesEveryChecksum) {
  const TemporaryFolder folder;
  fs::copy(kData / "ranks2" / "saved_on_2", folder.path() / "dcp");
  std::vector<std::string> errors;
  const auto verify = [&] {
    errors.clear();
    return verify_checkpoint(folder.path() / "dcp", [&](const auto& name, const auto& error) {
      errors.push_back(name + ": " + error);
    });
  };
  EXPECT_EQ(verify(), 12U);
  EXPECT_THAT(errors, IsEmpty());
  std::string bytes = read_file(folder.path() / "dcp" / "__0_0.distcp");
  bytes[709] ^= 0x40;
  fs::remove(folder.path() / "dcp" / "__0_0.distcp");
  folder.write("dcp/__0_0.distcp", bytes);
  EXPECT_EQ(verify(), 12U);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("model.w_uneven: "), HasSubstr("CRC-32")));
}

TEST(Verify, SafetensorsHasNoChecksums) {
  const TemporaryFolder folder;
  write_two_tensors(folder.path() / "model.safetensors");
  const auto ignore = [](const std::string&, const std::string&) {};
  EXPECT_EQ(verify_checkpoint(folder.path(), ignore), 0U);
  folder.write("model.safetensors", "short");
  EXPECT_THAT(error_of([&] { verify_checkpoint(folder.path(), ignore); }),
              HasSubstr("not a safetensors file"));
}

}  // namespace
}  // namespace shardloom::checkpoint
