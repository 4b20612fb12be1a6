// Writing a checkpoint on several ranks, and giving it its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/staged_folder.h"
#include "tests/dcp/samples.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint::dcp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

StatePath path_of(const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return {name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Rows of rank r of `world`, as torch.chunk cuts them.
Box rows_of(const TrueTensor& tensor, int rank, int world) {
  Box box{std::vector<int64_t>(tensor.shape.size()), tensor.shape};
  const int64_t rows = (tensor.shape[0] + world - 1) / world;
  box.offsets[0] = std::min(rank * rows, tensor.shape[0]);
  box.sizes[0] = std::min(rows, tensor.shape[0] - box.offsets[0]);
  return box;
}

void add_tensor(RankWriter& writer,
                const std::string& name,
                const TrueTensor& tensor,
                const Box& box) {
  const std::string bytes = cut_out(tensor, box);
  writer.add_tensor({name, tensor.dtype, tensor.shape}, box, path_of(name),
                    [&](const RankWriter::Sink& sink) {
                      for (size_t at = 0; at < bytes.size(); at += 7) sink(bytes.substr(at, 7));
                    });
}

// Every tensor cut along dimension 0; scalars on rank 0.
void save(const fs::path& folder, const std::map<std::string, TrueTensor>& tensors, int world) {
  begin_staging(folder);
  Metadata merged;
  for (int rank = 0; rank < world; ++rank) {
    RankWriter writer(staging_folder(folder), rank);
    if (rank == world - 1) writer.add_value("extra.step", {"extra", "step"}, 7);
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.shape.empty()) {
        add_tensor(writer, name, tensor, rows_of(tensor, rank, world));
      } else if (rank == 0) {
        add_tensor(writer, name, tensor, {});
      }
    }
    // As it travels between ranks.
    const std::string sent = metadata_pickle(writer.finish());
    merge_metadata(merged, parse_metadata(sent, "rank"), folder.string());
  }
  write_metadata(staging_folder(folder), merged);
  publish_staging(folder);
}

TEST(RankWriter, AnyNumberOfRanksReadsBack) {
  const std::map<std::string, TrueTensor> tensors = true_tensors("r2_dsd");
  for (const int world : {1, 2, 3, 8}) {
    const TemporaryFolder folder;
    save(folder.path() / "iter_0000007", tensors, world);
    EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("iter_0000007"));
    const Reader reader(folder.path() / "iter_0000007", {.verify_crc = true});
    EXPECT_EQ(reader.metadata().tensors.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      EXPECT_EQ(reader.tensor(name).dtype, tensor.dtype) << name;
      EXPECT_EQ(reader.read_tensor(name), tensor.bytes) << name << " on " << world;
      EXPECT_EQ(reader.metadata().planner_data.at(name), path_of(name));
    }
    EXPECT_EQ(reader.value("extra.step"), PythonValue(7));
    EXPECT_EQ(names_in(reader.folder()).size(), static_cast<size_t>(world) + 1);
  }
}

TEST(RankWriter, RankWithNothingWritesAnEmptyFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(RankWriter(folder.path(), 3).finish(), Metadata());
  EXPECT_EQ(fs::file_size(folder.path() / "__3_0.distcp"), 0U);
}

TEST(RankWriter, RefusesWrongBytesNamesAndBoxes) {
  const TemporaryFolder folder;
  RankWriter writer(folder.path(), 0);
  const TensorSpec spec{"w", DType::kU8, {4}};
  const auto give = [](const char* bytes) {
    return [bytes](const RankWriter::Sink& sink) { sink(bytes); };
  };
  writer.add_tensor(spec, {{0}, {2}}, {"w"}, give("12"));
  EXPECT_THROW(writer.add_value("w", {"w"}, 1), InternalError);
  EXPECT_THROW(writer.add_value("a.b", {"a", "c"}, 1), InternalError);
  writer.add_value("a.0.b", {"a", int64_t{0}, "b"}, 1);
  EXPECT_THROW(writer.add_value("a.0.b", {"a", int64_t{0}, "b"}, 1), InternalError);
  EXPECT_THROW(writer.add_tensor(spec, {{3}, {2}}, {"w"}, give("12")), InternalError);
  EXPECT_THROW(writer.add_tensor(spec, {{2}, {2}}, {"w"}, give("123")), InternalError);
  EXPECT_THROW(writer.add_tensor(spec, {{2}, {2}}, {"w"}, give("1")), InternalError);
}

TEST(RankWriter, FullDiskNamesFileAndBytes) {
  const TemporaryFolder folder;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{4096, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string error = error_of([&] {
    RankWriter writer(folder.path(), 0, 100'000);
    writer.add_tensor({"w", DType::kU8, {100'000}}, {{0}, {100'000}}, {"w"},
                      [](const RankWriter::Sink& sink) { sink(std::string(100'000, 'x')); });
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, AllOf(HasSubstr("cannot write"), HasSubstr("__0_0.distcp"),
                           HasSubstr("4.0 KiB written of 97.7 KiB")));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(StagedFolder, ReplacesOnlyAtTheEnd) {
  const TemporaryFolder folder;
  folder.write("out/old", "x");
  folder.write("out.tmp/half", "left by a killed run");
  const fs::path out = folder.path() / "out/";
  EXPECT_THAT(error_of([&] { require_free_folder(out); }), HasSubstr("exists and is not empty"));
  begin_staging(out);
  folder.write("out.tmp/new", "x");
  EXPECT_THAT(names_in(out), UnorderedElementsAre("old"));
  publish_staging(out);
  EXPECT_THAT(names_in(out), UnorderedElementsAre("new"));
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("out"));
}

TEST(StagedFolder, AbandonedLeavesTheOldOne) {
  const TemporaryFolder folder;
  folder.write("out/old", "x");
  begin_staging(folder.path() / "out");
  abandon_staging(folder.path() / "out");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("out"));
  EXPECT_TRUE(fs::exists(folder.path() / "out" / "old"));
}

TEST(StagedFolder, BringsBackWhatACrashMovedAside) {
  const TemporaryFolder folder;
  folder.write("out.old/weights", "x");
  EXPECT_TRUE(restore_folder(folder.path() / "out"));
  EXPECT_EQ(read_file(folder.path() / "out" / "weights"), "x");
  EXPECT_FALSE(restore_folder(folder.path() / "out"));
  folder.write("out.old/weights", "older");
  EXPECT_FALSE(restore_folder(folder.path() / "out"));
  EXPECT_EQ(read_file(folder.path() / "out" / "weights"), "x");
}

TEST(StagedFolder, ErrorsNameThePath) {
  const TemporaryFolder folder;
  folder.write("file", "x");
  EXPECT_THAT(error_of([&] { begin_staging(folder.path() / "file" / "out"); }),
              HasSubstr("file/out"));
  EXPECT_THAT(error_of([&] { publish_staging(folder.path() / "out"); }), HasSubstr("out.tmp"));
}

// A save as rank 0 does it, killed before step `last`.
void save_until(const fs::path& root, int64_t iteration, char fill, int last) {
  auto step = [&, at = 0]() mutable {
    if (at++ == last) ::raise(SIGKILL);
  };
  const fs::path folder = checkpoint_folder(root, iteration);
  step();
  begin_staging(folder);
  step();
  RankWriter writer(staging_folder(folder), 0);
  writer.add_tensor({"w", DType::kU8, {8}}, {{0}, {8}}, {"w"}, [&](const RankWriter::Sink& sink) {
    sink(std::string(4, fill));
    step();
    sink(std::string(4, fill));
  });
  const Metadata metadata = writer.finish();
  step();
  write_metadata(staging_folder(folder), metadata);
  step();
  publish_staging(folder);
  step();
  write_latest(root, iteration);
  step();
}

constexpr int kSaveSteps = 7;

// Save in a process of its own.
void run_save(const fs::path& root, int64_t iteration, char fill, int last) {
  const pid_t child = ::fork();
  if (child == 0) {
    save_until(root, iteration, fill, last);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WIFSIGNALED(status), last < kSaveSteps) << last;
}

std::string latest_bytes(const fs::path& root) {
  return Reader(read_latest(root).folder, {.verify_crc = true}).read_tensor("w");
}

class KilledSave : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(AtEveryStep, KilledSave, ::testing::Range(0, kSaveSteps));

TEST_P(KilledSave, LeavesTheOneBeforeAndDoesNotStandInTheWay) {
  const TemporaryFolder folder;
  run_save(folder.path(), 10, 'a', kSaveSteps);
  run_save(folder.path(), 20, 'b', GetParam());
  const char whole = GetParam() == kSaveSteps - 1 ? 'b' : 'a';
  EXPECT_EQ(latest_bytes(folder.path()), std::string(8, whole));
  run_save(folder.path(), 20, 'c', kSaveSteps);
  EXPECT_EQ(latest_bytes(folder.path()), std::string(8, 'c'));
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("iter_0000010", "iter_0000020", kLatestFileName));
}

TEST_P(KilledSave, OfTheSameIterationLeavesTheOldOrTheNew) {
  const TemporaryFolder folder;
  run_save(folder.path(), 10, 'a', kSaveSteps);
  run_save(folder.path(), 10, 'b', GetParam());
  const char whole = GetParam() >= 5 ? 'b' : 'a';  // published by then
  EXPECT_EQ(latest_bytes(folder.path()), std::string(8, whole));
}

TEST(SaveRoot, LatestIsAnIterationOrRelease) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_latest(folder.path()); }),
              HasSubstr("latest_checkpointed_iteration.txt"));
  write_latest(folder.path(), 2000);
  EXPECT_EQ(read_file(folder.path() / kLatestFileName), "2000");
  EXPECT_EQ(read_latest(folder.path()).iteration, 2000);
  EXPECT_EQ(read_latest(folder.path()).folder, folder.path() / "iter_0002000");
  write_latest(folder.path(), std::nullopt);
  EXPECT_EQ(read_latest(folder.path()).iteration, std::nullopt);
  EXPECT_EQ(read_latest(folder.path()).folder, folder.path() / "release");
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre(kLatestFileName));
  folder.write(kLatestFileName, "2000\n");
  EXPECT_EQ(read_latest(folder.path()).iteration, 2000);
  for (const char* text : {"", "2000x", "-1", "relase"}) {
    folder.write(kLatestFileName, text);
    EXPECT_THAT(error_of([&] { read_latest(folder.path()); }),
                HasSubstr("neither an iteration nor release"));
  }
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
