// .metadata: what it must and must not hold, merging of ranks, writing.
#include "shardloom/checkpoint/dcp/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/files.h"
#include "tests/dcp/samples.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint::dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorEntry rows_of_7x5(std::vector<std::pair<int64_t, int64_t>> rows, const std::string& file) {
  TensorEntry tensor{DType::kF32, {7, 5}, {}};
  uint64_t offset = 0;
  for (const auto& [first, count] : rows) {
    tensor.chunks.push_back({{{first, 0}, {count, 5}}, {file, offset, 100}});
    offset += 100;
  }
  return tensor;
}

Metadata example() {
  Metadata metadata;
  metadata.tensors["w"] = rows_of_7x5({{0, 4}, {4, 3}}, "__0_0.distcp");
  metadata.tensors["scalar"] = {DType::kI64, {}, {{{}, {"__1_0.distcp", 0, 50}}}};
  metadata.tensors["f8"] = {
      DType::kF8E4M3, {2}, {{{{0}, {2}}, {"__1_0.distcp", 50, 5'000'000'000}}}};
  metadata.values["extra.0.lr"] = {"__1_0.distcp", 6'000'000'000, 9};
  metadata.planner_data["w"] = {"w"};
  metadata.planner_data["extra.0.lr"] = {"extra", int64_t{0}, "lr"};
  return metadata;
}

TEST(DcpMetadata, PickleComesBack) {
  EXPECT_EQ(parse_metadata(metadata_pickle(example()), "test"), example());
  EXPECT_EQ(parse_metadata(metadata_pickle({}), "test"), Metadata());
}

TEST(DcpMetadata, ManyChunksStaySmall) {
  Metadata metadata;
  uint64_t chunks = 0;
  for (int layer = 0; layer < 100; ++layer) {
    TensorEntry& tensor = metadata.tensors[fmt::format("model.layers.{}.mlp.weight", layer)];
    tensor = {DType::kF32, {64, 4096}, {}};
    for (int64_t rank = 0; rank < 64; ++rank, ++chunks) {
      tensor.chunks.push_back(
          {{{rank, 0}, {1, 4096}}, {fmt::format("__{}_0.distcp", rank), 17000 * chunks, 17000}});
    }
  }
  const std::string pickle = metadata_pickle(metadata);
  // 56 bytes of opcodes and memo indices a chunk, 20 for what differs, and little else.
  EXPECT_LT(pickle.size(), 100 * chunks);
  EXPECT_EQ(parse_metadata(pickle, "test"), metadata);
}

TEST(DcpMetadata, HoleOverlapAndExcessAreNamed) {
  const auto problem = [](std::vector<std::pair<int64_t, int64_t>> rows) {
    Metadata metadata;
    metadata.tensors["model.w"] = rows_of_7x5(std::move(rows), "f");
    return error_of([&] { check_coverage(metadata, "x/.metadata"); });
  };
  EXPECT_EQ(problem({{0, 4}, {4, 3}}), "no error");
  EXPECT_THAT(problem({{0, 4}}), AllOf(HasSubstr("x/.metadata: \"model.w\""),
                                       HasSubstr("hold 20 elements, the shape [7, 5] has 35")));
  EXPECT_THAT(problem({{0, 4}, {3, 4}}), HasSubstr("overlap"));
  EXPECT_THAT(problem({{0, 4}, {4, 4}}), HasSubstr("[4, 0] + [4, 5] is outside the shape [7, 5]"));
}

TEST(DcpMetadata, FilesMustHoldEveryItemOnce) {
  const TemporaryFolder folder;
  Metadata metadata;
  metadata.tensors["w"] = rows_of_7x5({{0, 4}, {4, 3}}, "a");
  const auto problem = [&] { return error_of([&] { check_files(metadata, folder.path()); }); };
  EXPECT_THAT(problem(), HasSubstr("1 of its 1 files missing: a (needed for \"w\" and 1 more)"));
  folder.write("a", std::string(199, 'x'));
  EXPECT_THAT(problem(), HasSubstr("has 199 bytes, \"w\" needs 100 at 100"));
  folder.write("a", std::string(200, 'x'));
  EXPECT_EQ(problem(), "no error");
  metadata.values["v"] = {"a", 150, 50};
  EXPECT_THAT(problem(), HasSubstr("the bytes of \"w\" and \"v\" overlap at 150"));
  metadata.values["v"] = {"a", UINT64_MAX, 50};
  EXPECT_THAT(problem(), HasSubstr("\"v\" needs 50 at 18446744073709551615"));
}

TEST(DcpMetadata, RefusesFilesOutsideTheFolder) {
  for (const char* file : {"../secret", "/etc/passwd", "..", "", "a/b"}) {
    Metadata metadata;
    metadata.values["v"] = {file, 0, 1};
    EXPECT_THAT(error_of([&] { parse_metadata(metadata_pickle(metadata), "test"); }),
                AllOf(HasSubstr("\"v\""), HasSubstr("is not a file of the folder")))
        << file;
  }
}

// One change to a good pickle each; the texts have equal lengths.
TEST(DcpMetadata, OddContentIsNamed) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string pickle = metadata_pickle(example());
    for (size_t at = pickle.find(from); at != std::string::npos; at = pickle.find(from, at + 1)) {
      pickle.replace(at, from.size(), to);
    }
    return error_of([&] { parse_metadata(pickle, "x/.metadata"); });
  };
  EXPECT_THAT(changed("1.0.0", "2.0.0"), HasSubstr("version is the text \"2.0.0\""));
  EXPECT_THAT(changed("ctorch\nfloat32\n", "ctorch\nqint32\n"),
              AllOf(HasSubstr("\"w\""), HasSubstr("element type the global torch qint32")));
  EXPECT_THAT(changed("storage_data", "storage_Data"), HasSubstr("has no field storage_data"));
  EXPECT_THAT(changed("relative_path", "relative_peth"), HasSubstr("has no field relative_path"));
  EXPECT_THAT(changed("metadata\nMetadata\n", "metadata\nStorageMeta\n"),
              HasSubstr("not the metadata of a checkpoint"));
}

TEST(DcpMetadata, ItemsWithoutStorageAreNamed) {
  // This sample spells every name out each time: storage_data alone is changed.
  const std::string whole = read_file(kData / "samples" / "hand_minimal" / kMetadataName);
  const auto renamed = [&](const std::string& name) {
    std::string pickle = whole;
    const size_t at = pickle.find(name, pickle.find("storage_data"));
    EXPECT_NE(at, std::string::npos);
    pickle[at] = 'M';
    return error_of([&] { parse_metadata(pickle, "x/.metadata"); });
  };
  EXPECT_THAT(renamed("model.e"),
              HasSubstr("x/.metadata: \"model.e\": storage_data lacks the chunk at [0, 0]"));
  EXPECT_THAT(renamed("extra.step"), HasSubstr("\"extra.step\": storage_data lacks it"));
}

TEST(DcpMerge, JoinsRanksAndKeepsOneEmptyChunkOfAPlace) {
  Metadata merged;
  for (int rank = 0; rank < 4; ++rank) {
    Metadata part;
    const std::string file = fmt::format("__{}_0.distcp", rank);
    const int64_t first = std::min(rank, 2);
    part.tensors["w"] = {
        DType::kF32, {2, 3}, {{{{first, 0}, {rank < 2 ? 1 : 0, 3}}, {file, 0, 1}}}};
    part.planner_data["w"] = {"w"};
    if (rank == 1) part.values["step"] = {file, 1, 1};
    merge_metadata(merged, part, "test");
  }
  EXPECT_EQ(merged.tensors.at("w").chunks.size(), 3U);
  EXPECT_EQ(merged.values.at("step").file, "__1_0.distcp");
  EXPECT_EQ(error_of([&] { check_coverage(merged, "test"); }), "no error");
  EXPECT_EQ(parse_metadata(metadata_pickle(merged), "test"), merged);
}

TEST(DcpMerge, DisagreementIsNamed) {
  const auto problem = [](const std::function<void(Metadata&)>& change) {
    Metadata into = example();
    Metadata part = example();
    part.values.clear();
    part.tensors.erase("scalar");
    change(part);
    return error_of([&] { merge_metadata(into, part, "save"); });
  };
  EXPECT_THAT(problem([](Metadata& part) { part.tensors["w"].dtype = DType::kBF16; }),
              AllOf(HasSubstr("save: \"w\""), HasSubstr("F32 [7, 5]"), HasSubstr("BF16 [7, 5]")));
  EXPECT_THAT(problem([](Metadata& part) { part.values["extra.0.lr"] = {}; }),
              HasSubstr("\"extra.0.lr\": written by two ranks"));
  EXPECT_THAT(problem([](Metadata& part) { part.tensors["extra.0.lr"] = {}; }),
              HasSubstr("one rank has it as a tensor"));
  EXPECT_THAT(problem([](Metadata& part) { part.planner_data["w"] = {"v"}; }),
              HasSubstr("different paths"));
}

TEST(DcpMetadata, IsOnlyWrittenForAWholeCheckpoint) {
  const TemporaryFolder folder;
  Metadata metadata;
  metadata.tensors["w"] = rows_of_7x5({{0, 4}}, "a");
  folder.write("a", std::string(100, 'x'));
  EXPECT_THAT(error_of([&] { write_metadata(folder.path(), metadata); }), HasSubstr("20 elements"));
  metadata.tensors["w"] = rows_of_7x5({{0, 4}, {4, 3}}, "a");
  EXPECT_THAT(error_of([&] { write_metadata(folder.path(), metadata); }),
              HasSubstr("has 100 bytes"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / kMetadataName));
  folder.write("a", std::string(200, 'x'));
  write_metadata(folder.path(), metadata);
  EXPECT_EQ(read_metadata(folder.path()), metadata);
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
