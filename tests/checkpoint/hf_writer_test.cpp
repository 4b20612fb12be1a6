// Writers of safetensors files and Hugging Face folders: what is written reads back, and failures
// leave nothing behind.
#include "shardloom/checkpoint/hf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <functional>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Distinct bytes for each tensor.
std::string content_of(const TensorSpec& spec) {
  std::string bytes(spec_bytes(spec), '\0');
  unsigned state = static_cast<unsigned>(std::hash<std::string>{}(spec.name));
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1103515245 + 12345) >> 16);
  return bytes;
}

const std::vector<TensorSpec> kSpecs = {
    {"odd", DType::kBF16, {3}},   {"wide", DType::kF32, {5, 7}},
    {"flag", DType::kBool, {5}},  {"empty", DType::kF32, {0}},
    {"scalar", DType::kI64, {}},  {"\"quoted\" \xC3\xA9", DType::kU8, {2}},
    {"half", DType::kF16, {2, 3}}};

void provide_in_pieces(const TensorSpec& spec, const HfFolderWriter::Sink& sink) {
  const std::string content = content_of(spec);
  for (size_t at = 0; at < content.size(); at += 7) sink(std::string_view(content).substr(at, 7));
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> listing(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    names.push_back(std::filesystem::relative(entry.path(), folder).string());
  }
  return names;
}

// Every write past `bytes` of a file fails as on a full disk, for as long as this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(SafetensorsWriter, RoundTripKeepsEverythingAndAligns) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  SafetensorsWriter writer(path, kSpecs, {{"format", "pt"}, {"step", "7"}});
  for (const TensorSpec& spec : writer.tensors()) writer.write(spec.name, content_of(spec));
  writer.finish();
  EXPECT_THAT(listing(folder.path()), ElementsAre("x.safetensors"));

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("step"), "7");
  ASSERT_EQ(file.tensors().size(), kSpecs.size());
  for (const TensorSpec& spec : kSpecs) {
    const TensorInfo* info = file.find(spec.name);
    ASSERT_NE(info, nullptr) << spec.name;
    EXPECT_EQ(info->dtype, spec.dtype);
    EXPECT_EQ(info->shape, spec.shape);
    EXPECT_EQ(info->offset % (dtype_bits(spec.dtype) / 8), 0U) << spec.name;
    EXPECT_EQ(file.data(*info), content_of(spec)) << spec.name;
  }
}

TEST(SafetensorsWriter, WritesAFileWithoutTensors) {
  const TemporaryFolder folder;
  SafetensorsWriter(folder.path() / "none.safetensors", {}).finish();
  EXPECT_EQ(SafetensorsFile(folder.path() / "none.safetensors").tensors().size(), 0U);
}

TEST(SafetensorsWriter, RefusesDataOutOfOrderTooMuchOrTooLittle) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.path() / "x", {{"a", DType::kU8, {2}}, {"b", DType::kU8, {2}}});
  EXPECT_THROW(writer.write("b", "12"), InternalError);
  writer.write("a", "1");
  EXPECT_THROW(writer.write("a", "23"), InternalError);
  EXPECT_THROW(writer.finish(), InternalError);
}

TEST(SafetensorsWriter, RefusesNamesItCannotKeepApart) {
  const TemporaryFolder folder;
  const TensorSpec spec{"a", DType::kU8, {2}};
  EXPECT_THROW(SafetensorsWriter(folder.path() / "x", {spec, spec}), InternalError);
  EXPECT_THROW(SafetensorsWriter(folder.path() / "x", {{"__metadata__", DType::kU8, {2}}}),
               InternalError);
}

TEST(SafetensorsWriter, KeepsTheOldFileUntilFinished) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.safetensors", "old");
  {
    SafetensorsWriter writer(path, {{"a", DType::kU8, {2}}});
    writer.write("a", "12");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(listing(folder.path()), ElementsAre("x.safetensors"));
}

TEST(SafetensorsWriter, FullDiskNamesFileAndBytes) {
  const TemporaryFolder folder;
  const TensorSpec spec{"a", DType::kU8, {100000}};
  const FileSizeLimit limit(4096);
  const std::string error = error_of([&] {
    SafetensorsWriter writer(folder.path() / "x.safetensors", {spec});
    writer.write("a", content_of(spec));
  });
  EXPECT_THAT(error, AllOf(HasSubstr("cannot write"), HasSubstr("x.safetensors"),
                           HasSubstr("4.0 KiB written of 97.")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, FolderThatIsNotThereIsNamed) {
  const std::string error = error_of([] { SafetensorsWriter("/nowhere/x.safetensors", {}); });
  EXPECT_THAT(error, AllOf(HasSubstr("/nowhere/x.safetensors"), HasSubstr("No such file")));
}

TEST(PlanShards, FillsFilesInOrder) {
  const auto spec = [](const char* name, int64_t bytes) {
    return TensorSpec{name, DType::kU8, {bytes}};
  };
  const auto sizes = [](const std::vector<std::vector<TensorSpec>>& shards) {
    std::vector<size_t> sizes;
    for (const auto& shard : shards) sizes.push_back(shard.size());
    return sizes;
  };
  EXPECT_THAT(sizes(plan_shards({spec("a", 4), spec("b", 6), spec("c", 1)}, 10)),
              ElementsAre(2, 1));
  EXPECT_THAT(sizes(plan_shards({spec("a", 1), spec("b", 99), spec("c", 1)}, 10)),
              ElementsAre(1, 1, 1));
  EXPECT_THAT(sizes(plan_shards({spec("a", 99), spec("b", 5), spec("c", 5)}, 10)),
              ElementsAre(1, 2));
}

TEST(HfFolderWriter, RoundTripOverSeveralShards) {
  const TemporaryFolder folder;
  const auto target = folder.path() / "deep" / "out";
  HfFolderWriter writer(target, kSpecs, {.max_shard_bytes = 64});
  writer.add_text_file("config.json", "{}\n");
  writer.write(provide_in_pieces);

  EXPECT_THAT(listing(folder.path() / "deep"),
              UnorderedElementsAre("out", "out/config.json", "out/model.safetensors.index.json",
                                   "out/model-00001-of-00003.safetensors",
                                   "out/model-00002-of-00003.safetensors",
                                   "out/model-00003-of-00003.safetensors"));
  const HfFolder read = HfFolder::open(target);
  EXPECT_THAT(read.warnings(), ::testing::IsEmpty());
  EXPECT_EQ(read.tensors().size(), kSpecs.size());
  for (const TensorSpec& spec : kSpecs) EXPECT_EQ(read.get(spec.name).data(), content_of(spec));
  const Json index = read_json_file(target / kIndexFileName, ExitCode::kCheckpoint);
  EXPECT_EQ(index.at("metadata").at("total_size"), 173);
  EXPECT_EQ(index.at("weight_map").size(), kSpecs.size());
}

TEST(HfFolderWriter, CopiesWhatIsNotWeights) {
  const TemporaryFolder folder;
  folder.write("source/tokenizer.json", "tokens");
  folder.write("source/config.json", "old config");
  folder.write("source/code/modeling.py", "pass");
  folder.write("source/model-00001-of-00001.safetensors", "weights");
  folder.write("source/model.safetensors.index.json", "{}");
  folder.write("source/pytorch_model.bin", "weights");
  folder.write("source/.cache/x", "hidden");
  const auto target = folder.path() / "source" / "export";
  HfFolderWriter writer(target, {{"a", DType::kU8, {2}}});
  writer.add_text_file("config.json", "new config");
  writer.copy_files_from(folder.path() / "source");
  writer.write(provide_in_pieces);
  EXPECT_THAT(listing(target),
              UnorderedElementsAre("config.json", "tokenizer.json", "code", "code/modeling.py",
                                   "model-00001-of-00001.safetensors", kIndexFileName));
  EXPECT_EQ(read_file(target / "config.json"), "new config");
  EXPECT_EQ(HfFolder::open(target).tensors().size(), 1U);
}

TEST(HfFolderWriter, CopiesThroughLinksButNotInCircles) {
  const TemporaryFolder folder;
  folder.write("source/config.json", "{}");
  folder.write("elsewhere/blob", "tokens");
  folder.write("elsewhere/code/modeling.py", "pass");
  const auto source = folder.path() / "source";
  std::filesystem::create_symlink("../elsewhere/blob", source / "tokenizer.json");
  std::filesystem::create_symlink("../elsewhere/code", source / "code");
  std::filesystem::create_symlink(".", source / "self");
  std::filesystem::create_symlink("..", source / "above");
  std::filesystem::create_symlink("nowhere", source / "old.safetensors");  // no file to copy
  ASSERT_EQ(::mkfifo((source / "pipe").c_str(), 0600), 0);
  const auto target = folder.path() / "out";
  HfFolderWriter writer(target, {{"a", DType::kU8, {2}}});
  writer.copy_files_from(source);
  writer.write(provide_in_pieces);
  EXPECT_THAT(listing(target),
              UnorderedElementsAre("config.json", "tokenizer.json", "code", "code/modeling.py",
                                   "model-00001-of-00001.safetensors", kIndexFileName));
  EXPECT_FALSE(std::filesystem::is_symlink(target / "tokenizer.json"));
}

TEST(HfFolderWriter, BrokenLinkIsNamedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "source");
  std::filesystem::create_symlink("nowhere", folder.path() / "source" / "vocab.json");
  HfFolderWriter writer(folder.path() / "out", kSpecs);
  writer.copy_files_from(folder.path() / "source");
  const auto refuse = [](const TensorSpec& spec, const HfFolderWriter::Sink&) {
    FAIL() << spec.name << " was asked for";
  };
  EXPECT_THAT(error_of([&] { writer.write(refuse); }),
              HasSubstr("vocab.json is a link that leads nowhere"));
  EXPECT_THAT(listing(folder.path()), UnorderedElementsAre("source", "source/vocab.json"));
}

TEST(HfFolderWriter, LinkToAnEmptyFolderKeepsItsPlace) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "disk");
  const auto link = folder.path() / "out";
  std::filesystem::create_symlink("disk", link);
  HfFolderWriter(link, kSpecs).write(provide_in_pieces);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(HfFolder::open(folder.path() / "disk").tensors().size(), kSpecs.size());
  std::filesystem::create_symlink("nowhere", folder.path() / "broken");
  EXPECT_THAT(error_of([&] { HfFolderWriter(folder.path() / "broken", kSpecs); }),
              HasSubstr("broken exists"));
}

TEST(HfFolderWriter, RefusesOrReplacesAFolderInUse) {
  const TemporaryFolder folder;
  folder.write("out/precious", "x");
  const auto target = folder.path() / "out";
  EXPECT_THAT(error_of([&] { HfFolderWriter(target, kSpecs); }), HasSubstr("is not empty"));
  HfFolderWriter(target, kSpecs, {.replace = true}).write(provide_in_pieces);
  EXPECT_THAT(listing(folder.path()),
              UnorderedElementsAre("out", "out/model-00001-of-00001.safetensors",
                                   "out/model.safetensors.index.json"));
}

TEST(HfFolderWriter, AcceptsAnEmptyFolderAndALeftOver) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "out");
  folder.write("out.tmp/half", "left by a killed run");
  HfFolderWriter(folder.path() / "out/", kSpecs).write(provide_in_pieces);
  EXPECT_EQ(HfFolder::open(folder.path() / "out").tensors().size(), kSpecs.size());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out.tmp"));
}

TEST(HfFolderWriter, FailureLeavesNothingBehindAndKeepsTheOld) {
  const TemporaryFolder folder;
  folder.write("out/precious", "x");
  HfFolderWriter writer(folder.path() / "out", kSpecs, {.replace = true});
  EXPECT_THROW(writer.write([](const TensorSpec&, const HfFolderWriter::Sink&) {
    throw DistributedError("a rank is gone");
  }),
               DistributedError);
  EXPECT_THAT(listing(folder.path()), UnorderedElementsAre("out", "out/precious"));
}

TEST(HfFolderWriter, FullDiskIsACheckpointError) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(64);
  HfFolderWriter writer(folder.path() / "out", kSpecs);
  EXPECT_THROW(writer.write(provide_in_pieces), CheckpointError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace shardloom::checkpoint
