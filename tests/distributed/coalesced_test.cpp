// Several tensors in one collective: the same values as one by one, on both backends, and one entry
// in the log.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

struct Case {
  BackendKind backend;
  int size;
};

// Longer than a slot of the shared segment, of no round length, and empty.
constexpr int64_t kLengths[] = {1, 300'001, 0, 7, 64, 131'072};

class Coalesced : public ::testing::TestWithParam<Case> {
 protected:
  void on_ranks(const std::function<void(const RankContext&, Group&)>& body) {
    expect_ranks(GetParam().size, [&](const RankContext& rank) {
      const auto world =
          World::over(rank.store, rank.rank, rank.size, GetParam().backend, kDefaultTimeout);
      body(rank, *world->group());
      world->group()->barrier();
    });
  }
};

TEST_P(Coalesced, GatherOfSeveralTypesEqualsOneByOne) {
  on_ranks([](const RankContext& rank, Group& group) {
    std::vector<at::Tensor> inputs, outputs, expected;
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t length : kLengths) {
        if (length == 0) continue;
        inputs.push_back(rank_values(rank.rank, {length}, dtype));
        outputs.push_back(at::empty({rank.size * length}, inputs.back().options()));
        expected.push_back(at::empty_like(outputs.back()));
        group.all_gather(expected.back(), inputs.back()).wait();
      }
    }
    const uint64_t before = group.log()->last_issued().sequence;
    group.all_gather(outputs, inputs, "all").wait();
    EXPECT_EQ(group.log()->last_issued().sequence, before + 1);
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_TRUE(same_bits(outputs[i], expected[i])) << i;
  });
}

TEST_P(Coalesced, ReductionsEqualOneByOne) {
  on_ranks([](const RankContext& rank, Group& group) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kAverage}) {
      std::vector<at::Tensor> inputs, expected;
      int64_t total = 0;
      for (const int64_t length : kLengths) {
        if (length == 0) continue;
        inputs.push_back(rank_values(rank.rank, {rank.size * length}, at::kFloat));
        expected.push_back(at::empty({length}));
        total += length;
        group.reduce_scatter(expected.back(), inputs.back(), reduction).wait();
      }
      const at::Tensor output = at::empty({total});
      group.reduce_scatter(output, inputs, reduction, "all").wait();
      EXPECT_TRUE(same_bits(output, at::cat(expected)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         Coalesced,
                         ::testing::Values(Case{BackendKind::kShm, 2},
                                           Case{BackendKind::kShm, 3},
                                           Case{BackendKind::kGloo, 2}),
                         [](const auto& info) {
                           return suffix(info.param.backend) + std::to_string(info.param.size);
                         });

// Units may have parameters without elements on the shm backend and on no other.
TEST(CoalescedOverShm, EmptyTensorsAreSkipped) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto world =
        World::over(rank.store, rank.rank, rank.size, BackendKind::kShm, kDefaultTimeout);
    const std::vector<at::Tensor> inputs = {at::empty({0}), at::full({3}, rank.rank + 1.0f),
                                            at::empty({0})};
    const std::vector<at::Tensor> outputs = {at::empty({0}), at::empty({6}), at::empty({0})};
    world->group()->all_gather(outputs, inputs).wait();
    EXPECT_TRUE(at::equal(outputs[1], at::tensor({1.0f, 1.0f, 1.0f, 2.0f, 2.0f, 2.0f})));
    world->group()->all_gather({at::empty({0})}, {at::empty({0})}).wait();
  });
}

TEST(CoalescedOverShm, SizesThatDifferAmongRanksAreNamed) {
  expect_ranks(2, [](const RankContext& rank) {
    const auto world =
        World::over(rank.store, rank.rank, rank.size, BackendKind::kShm, kDefaultTimeout);
    const int64_t length = 4 + rank.rank;
    const std::string error = distributed_error([&] {
      world->group()
          ->all_gather({at::empty({4}), at::empty({2 * length})},
                       {at::empty({2}), at::empty({length})}, "unit x")
          .wait();
    });
    EXPECT_THAT(error, ::testing::AllOf(::testing::HasSubstr("the ranks do not agree"),
                                        ::testing::HasSubstr("unit x")));
  });
}

}  // namespace
}  // namespace shardloom::distributed::testing
