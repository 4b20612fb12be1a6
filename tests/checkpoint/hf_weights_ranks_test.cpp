// HF folders and parameters whose rows are spread over ranks: against the same with whole tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <map>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

using distributed::RowRange;
using distributed::ShardedTensor;
using distributed::World;
using distributed::testing::expect_ranks;
using distributed::testing::rank_values;
using distributed::testing::RankContext;
using distributed::testing::same_bits;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The stored shapes that models have: matrices, q, k, v as row blocks, expert blocks (gate and up
// side by side), a kernel, a vector, and tensors with fewer rows than ranks.
const std::vector<std::pair<std::string, std::vector<int64_t>>> kParameters = {
    {"embed", {7, 5}},    {"qkv", {9, 4}},          {"qkv.bias", {9}}, {"gate_up", {3 * 4, 2 * 3}},
    {"down", {3 * 3, 4}}, {"kernel", {5, 3, 2, 2}}, {"norm", {2}},     {"class", {1, 1, 6}},
};

std::vector<nn::WeightSource> sources(nn::Layout layout) {
  const bool split = layout != nn::Layout::kRemoteCode;
  const std::string root = layout == nn::Layout::kHfInMemory ? "model." : "";
  std::vector<nn::WeightSource> list;
  for (const auto& [name, shape] : kParameters) {
    if (name.starts_with("qkv") && split) {
      std::vector<nn::WeightPiece> pieces;
      std::vector<int64_t> part = shape;
      part[0] = 3;
      for (int64_t i = 0; i < 3; ++i)
        pieces.push_back({fmt::format("{}{}.{}", root, name, i), part, 3 * i, 0, false});
      list.push_back({name, std::move(pieces)});
    } else if (name == "gate_up" || name == "down") {
      std::vector<nn::WeightPiece> pieces;
      const int64_t rows = shape[0] / 3;
      const int64_t columns = name == "down" ? shape[1] : shape[1] / 2;
      for (int64_t e = 0; e < 3; ++e) {
        for (int64_t c = 0; c < shape[1]; c += columns)
          pieces.push_back(
              {fmt::format("{}{}.{}.{}", root, name, e, c), {columns, rows}, e * rows, c, true});
      }
      list.push_back({name, std::move(pieces)});
    } else {
      list.push_back({name, {{(split ? root + "hf." : "") + name, shape}}});
    }
  }
  return list;
}

at::Tensor whole_value(const std::string& name) {
  for (size_t i = 0; i < kParameters.size(); ++i) {
    if (kParameters[i].first == name)
      return rank_values(0, kParameters[i].second, at::kFloat, static_cast<int>(i));
  }
  throw InternalError("no parameter {}", name);
}

std::vector<ShardedTensor> whole_parameters() {
  std::vector<ShardedTensor> tensors;
  for (const auto& [name, shape] : kParameters)
    tensors.push_back(ShardedTensor::whole(name, whole_value(name)));
  return tensors;
}

// This rank's rows of the values, or of a constant.
std::vector<ShardedTensor> shards(const World& world, std::optional<double> constant = {}) {
  std::vector<ShardedTensor> tensors;
  for (const auto& [name, shape] : kParameters) {
    const RowRange rows = distributed::shard_rows(shape[0], world.rank(), world.size());
    at::Tensor local = whole_value(name).narrow(0, rows.first, rows.count).clone();
    if (constant) local.fill_(*constant);
    tensors.push_back({name, local, shape, rows.first, world.group()});
  }
  return tensors;
}

std::shared_ptr<World> world_of(const RankContext& context) {
  return World::over(context.store, context.rank, context.size, distributed::BackendKind::kAuto);
}

std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename()] = read_file(entry.path());
  return files;
}

class HfWeightsRanks : public ::testing::TestWithParam<int> {
 protected:
  HfExportOptions options(DType dtype = DType::kF32) const {
    HfExportOptions o;
    o.dtype = dtype;
    o.config_json = "{}";
    return o;
  }
  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

TEST_P(HfWeightsRanks, LoadGivesTheRowsOfTheWholeLoadInEachLayout) {
  for (const nn::Layout layout : nn::kAllLayouts) {
    const auto folder = path(fmt::format("layout{}", static_cast<int>(layout)));
    export_hf_weights(folder, sources(layout), whole_parameters(), options());
    expect_ranks(GetParam(), [&](const RankContext& context) {
      const auto world = world_of(context);
      const auto loaded = shards(*world, -7.0);
      HfLoadOptions load;
      load.verbose = false;
      load_hf_weights(HfFolder::open(folder), sources, loaded, load);
      for (const ShardedTensor& t : loaded) {
        const at::Tensor rows = whole_value(t.name).narrow(0, t.first_row, t.local.size(0));
        EXPECT_TRUE(same_bits(t.local, rows)) << t.name << " of rank " << world->rank();
      }
    });
  }
}

TEST_P(HfWeightsRanks, ExportOfShardsIsThatOfTheWholeByteForByte) {
  for (const nn::Layout layout : nn::kAllLayouts) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const auto name = fmt::format("{}_{}", static_cast<int>(layout), dtype_name(dtype));
      export_hf_weights(path(name), sources(layout), whole_parameters(), options(dtype));
      expect_ranks(GetParam(), [&](const RankContext& context) {
        const auto world = world_of(context);
        HfExportOptions o = options(dtype);
        o.group = world->group();
        export_hf_weights(path(name + "_shards"), sources(layout), shards(*world), o);
        // In place on every rank once the call has returned.
        EXPECT_TRUE(std::filesystem::exists(path(name + "_shards") / "config.json"));
      });
      EXPECT_EQ(files_of(path(name)), files_of(path(name + "_shards"))) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, HfWeightsRanks, ::testing::Values(1, 2, 3));

// Rank 0 must throw a CheckpointError with `text`, the others be ended by the broken group.
void expect_failing_export(const std::filesystem::path& folder,
                           const std::string& text,
                           const std::function<void()>& prepare_writer) {
  expect_ranks(3, [&](const RankContext& context) {
    auto world = world_of(context);
    HfExportOptions o;
    o.config_json = "{}";
    o.group = world->group();
    if (world->rank() == 0) prepare_writer();
    try {
      export_hf_weights(folder, sources(nn::Layout::kRemoteCode), shards(*world), o);
      ADD_FAILURE() << "no error on rank " << world->rank();
    } catch (const CheckpointError& error) {
      EXPECT_EQ(world->rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr(text));
    } catch (const DistributedError&) {
      EXPECT_NE(world->rank(), 0);
    }
  });
}

TEST(HfExportFailure, TakenFolderEndsAllRanks) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "mine.txt", "mine");
  expect_failing_export(folder.path(), "exists and is not empty", [] {});
  EXPECT_EQ(read_file(folder.path() / "mine.txt"), "mine");
}

TEST(HfExportFailure, FailedWriteEndsAllRanksAndLeavesNothing) {
  const TemporaryFolder folder;
  const auto target = folder.path() / "export";
  expect_failing_export(target, "model-00001-of-00001.safetensors", [] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1200, 1200};  // the header fits, the tensors do not
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  });
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_FALSE(std::filesystem::exists(target.string() + ".tmp"));
}

}  // namespace
}  // namespace shardloom::checkpoint
