// Rows of sharded tensors.
#include "shardloom/distributed/sharded_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

TEST(ShardRows, CutsAsTorchChunkDoes) {
  for (int size = 1; size <= 7; ++size) {
    for (int64_t rows = 1; rows <= 20; ++rows) {
      const std::vector<at::Tensor> chunks = at::arange(rows).chunk(size);
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const RowRange range = shard_rows(rows, rank, size);
        const bool has_chunk = rank < static_cast<int>(chunks.size());
        EXPECT_EQ(range.count, has_chunk ? chunks[rank].numel() : 0) << rows << " over " << size;
        EXPECT_EQ(range.first, next);
        next += range.count;
      }
      EXPECT_EQ(next, rows);
    }
  }
  EXPECT_EQ(shard_rows(0, 1, 3).count, 0);
}

class GatherRows : public ::testing::TestWithParam<BackendKind> {};
INSTANTIATE_TEST_SUITE_P(Backends,
                         GatherRows,
                         ::testing::Values(BackendKind::kShm, BackendKind::kGloo),
                         [](const auto& info) { return suffix(info.param); });

// 4 rows on 3 ranks: 2, 2 and none; 7 rows: 3, 3 and 1.
TEST_P(GatherRows, EveryRangeOnEveryRank) {
  expect_ranks(3, [](const RankContext& c) {
    const auto world = World::over(c.store, c.rank, c.size, GetParam());
    for (const int64_t rows : {4, 7}) {
      const at::Tensor whole = rank_values(0, {rows, 2, 5}, at::kBFloat16);
      const RowRange own = shard_rows(rows, c.rank, c.size);
      const ShardedTensor sharded{"weight",
                                  whole.narrow(0, own.first, own.count).clone().requires_grad_(),
                                  whole.sizes().vec(), own.first, world->group()};
      for (int64_t first = 0; first <= rows; ++first) {
        for (int64_t count = 0; first + count <= rows; ++count) {
          const at::Tensor gathered = gather_rows(sharded, first, count);
          EXPECT_TRUE(same_bits(gathered, whole.narrow(0, first, count))) << first << " " << count;
          EXPECT_FALSE(gathered.requires_grad());
        }
      }
    }
    world->group()->barrier();
  });
}

TEST(ShardedTensor, Whole) {
  at::Tensor tensor = rank_values(0, {4, 3}, at::kFloat);
  const ShardedTensor whole = ShardedTensor::whole("bias", tensor);
  EXPECT_EQ(whole.name, "bias");
  EXPECT_EQ(whole.shape, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(whole.first_row, 0);
  EXPECT_TRUE(whole.local.is_alias_of(tensor));
  const at::Tensor rows = gather_rows(whole, 1, 2);
  EXPECT_TRUE(same_bits(rows, tensor.narrow(0, 1, 2)));
  EXPECT_FALSE(rows.is_alias_of(tensor));
  EXPECT_THROW(gather_rows(whole, 3, 2), InternalError);
}

}  // namespace
}  // namespace shardloom::distributed::testing
