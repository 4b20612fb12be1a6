// Values, error texts and bookkeeping of Group, on the backends that can be had without a GPU.
#include "shardloom/distributed/group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <numeric>

#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::shared_ptr<World> world_of(const RankContext& c,
                                BackendKind backend,
                                std::chrono::milliseconds timeout = kDefaultTimeout) {
  return World::over(c.store, c.rank, c.size, backend, timeout);
}

// Small integers: sums and averages of them are exact in bf16, too.
at::Tensor integers(int rank, int64_t rows, at::ScalarType dtype) {
  return (at::arange(rows * 3, at::kLong).remainder(5) + rank).reshape({rows, 3}).to(dtype);
}

struct Case {
  BackendKind backend;
  int size;
};

class GroupValues : public ::testing::TestWithParam<Case> {
 protected:
  void for_types(const std::function<void(const RankContext&, Group&, at::ScalarType)>& body) {
    expect_ranks(GetParam().size, [&](const RankContext& c) {
      const auto world = world_of(c, GetParam().backend);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(fmt::format("rank {} {}", c.rank, c10::toString(dtype)));
        body(c, *world->group(), dtype);
      }
      // Gloo's ranks must not leave while others still talk to them.
      world->group()->barrier();
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Backends,
                         GroupValues,
                         ::testing::Values(Case{BackendKind::kShm, 1},
                                           Case{BackendKind::kShm, 3},
                                           Case{BackendKind::kGloo, 1},
                                           Case{BackendKind::kGloo, 3}),
                         [](const auto& info) {
                           return suffix(info.param.backend) + std::to_string(info.param.size);
                         });

TEST_P(GroupValues, AllGatherAlsoOfTheOwnPart) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < c.size; ++rank) parts.push_back(integers(rank, 2, dtype));
    at::Tensor output = at::zeros({2 * c.size, 3}, dtype);
    group.all_gather(output, parts[c.rank]).wait();
    EXPECT_TRUE(same_bits(output, at::cat(parts)));
    output.zero_();
    at::Tensor own = output.narrow(0, 2 * c.rank, 2);
    own.copy_(parts[c.rank]);
    group.all_gather(output, own).wait();
    EXPECT_TRUE(same_bits(output, at::cat(parts)));
    group.all_gather(output, parts[c.rank].t().contiguous().t()).wait();
    EXPECT_TRUE(same_bits(output, at::cat(parts)));
  });
}

at::Tensor reduced(int size, int64_t rows, at::ScalarType dtype, Reduction reduction) {
  at::Tensor result = integers(0, rows, dtype);
  const bool adds = reduction == Reduction::kSum || reduction == Reduction::kAverage;
  for (int rank = 1; rank < size; ++rank) {
    const at::Tensor next = integers(rank, rows, dtype);
    result = adds                           ? result + next
             : reduction == Reduction::kMax ? at::max(result, next)
                                            : at::min(result, next);
  }
  return reduction == Reduction::kAverage ? result / size : result;
}

TEST_P(GroupValues, Reductions) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    for (const Reduction reduction :
         {Reduction::kSum, Reduction::kAverage, Reduction::kMax, Reduction::kMin}) {
      const int64_t rows = 2 * c.size;
      const at::Tensor expected = reduced(c.size, rows, dtype, reduction);
      at::Tensor tensor = integers(c.rank, rows, dtype);
      Pending pending = group.all_reduce(tensor, reduction);
      EXPECT_TRUE(pending.is_open());
      pending.wait();
      EXPECT_FALSE(pending.is_open());
      pending.wait();
      EXPECT_TRUE(same_bits(tensor, expected)) << static_cast<int>(reduction);
      at::Tensor part = at::empty({2, 3}, dtype);
      group.reduce_scatter(part, integers(c.rank, rows, dtype), reduction).wait();
      EXPECT_TRUE(same_bits(part, expected.narrow(0, 2 * c.rank, 2)));
    }
  });
}

TEST_P(GroupValues, AverageDividesOnceForCopiesOfAPending) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    at::Tensor tensor = at::full({4}, 2 * c.rank, dtype);
    Pending one = group.all_reduce(tensor, Reduction::kAverage);
    Pending two = one;
    one.wait();
    two.wait();
    EXPECT_TRUE(tensor.eq(c.size - 1).all().item<bool>());
  });
}

// Rank r sends r + peer rows to each peer, so that rank 0 sends none to itself.
TEST_P(GroupValues, AllToAllWithUnevenSplits) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    std::vector<int64_t> splits;
    std::vector<at::Tensor> expected;
    for (int peer = 0; peer < c.size; ++peer) {
      splits.push_back(c.rank + peer);
      expected.push_back(at::full({c.rank + peer, 3}, 10 * peer + c.rank, dtype));
    }
    std::vector<at::Tensor> sent;
    for (int peer = 0; peer < c.size; ++peer) {
      sent.push_back(at::full({c.rank + peer, 3}, 10 * c.rank + peer, dtype));
    }
    at::Tensor output = at::empty({std::reduce(splits.begin(), splits.end()), 3}, dtype);
    group.all_to_all(output, at::cat(sent), splits, splits).wait();
    EXPECT_TRUE(same_bits(output, at::cat(expected)));
  });
}

TEST_P(GroupValues, BroadcastFromEachRank) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    for (int root = 0; root < c.size; ++root) {
      at::Tensor tensor = integers(c.rank, 4, dtype);
      group.broadcast(tensor, root).wait();
      EXPECT_TRUE(same_bits(tensor, integers(root, 4, dtype)));
    }
  });
}

TEST_P(GroupValues, EmptyTensors) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    at::Tensor none = at::empty({0, 3}, dtype);
    group.all_gather(none, at::empty({0, 3}, dtype)).wait();
    group.reduce_scatter(none, at::empty({0, 3}, dtype), Reduction::kSum).wait();
    group.all_reduce(none, Reduction::kAverage).wait();
    group.broadcast(none, 0).wait();
    group.all_to_all(none, none, std::vector<int64_t>(c.size, 0), std::vector<int64_t>(c.size, 0))
        .wait();
  });
}

TEST_P(GroupValues, DroppedPendingsStillHappen) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    at::Tensor tensor = at::ones({4}, dtype);
    group.all_reduce(tensor, Reduction::kSum);
    at::Tensor last = at::ones({1});
    group.all_reduce(last, Reduction::kSum).wait();
    group.barrier();
    EXPECT_TRUE(tensor.eq(c.size).all().item<bool>());
  });
}

TEST_P(GroupValues, RefusedArgumentsNameTheCollectiveAndDoNotCount) {
  for_types([](const RankContext& c, Group& group, at::ScalarType dtype) {
    const uint64_t before = group.log()->last_issued().sequence;
    at::Tensor strided = at::ones({3, 2 * c.size}, dtype).t();
    const std::string text = distributed_error([&] {
      group.all_gather(strided, at::ones({2, 3}, dtype), "unit a.b");
    });
    EXPECT_EQ(text, fmt::format("rank {}, group world, all_gather #{} (unit a.b): the output must "
                                "be contiguous, its strides are 1, {}",
                                c.rank, before + 1, 2 * c.size));
    at::Tensor whole = at::ones({3}, at::kLong);
    EXPECT_THAT(distributed_error([&] { group.all_reduce(whole, Reduction::kAverage); }),
                AllOf(HasSubstr("all_reduce #"), HasSubstr("no average of Long")));
    EXPECT_THAT(distributed_error([&] {
                  at::Tensor output = at::empty({c.size, 2}, dtype);
                  group.all_gather(output, at::ones({3}, dtype)).wait();
                }),
                AllOf(StartsWith(fmt::format("rank {}, group world, all_gather #", c.rank)),
                      Not(HasSubstr("\n"))));
    EXPECT_EQ(group.log()->last_issued().sequence, before);
  });
}

TEST(GroupErrors, ShmTextGetsTheLabelOnce) {
  const auto body = [](const RankContext& c) {
    const auto world = world_of(c, BackendKind::kShm);
    const auto group =
        c.rank < 2 ? world->make_group("edge", {0, 1}) : world->make_group("edge", {2, 3});
    if (c.rank == 3) ::raise(SIGKILL);
    if (c.rank < 2) return;
    at::Tensor tensor = at::ones({4});
    Pending pending = group->all_reduce(tensor, Reduction::kSum, "gradient norm");
    const std::string text = distributed_error([&] { pending.wait(); });
    // Ranks are those of the world.
    EXPECT_THAT(text, AllOf(StartsWith("rank 2, group edge, all_reduce #1 (gradient norm): rank 3 "
                                       "(pid "),
                            HasSubstr("has ended")));
    pending.wait();
  };
  EXPECT_EQ(run_ranks(4, body, 20), (std::vector<int>{0, 0, 0, 128 + SIGKILL}));
}

TEST(GroupErrors, MismatchNamesWorldRanks) {
  expect_ranks(4, [](const RankContext& c) {
    const auto world = world_of(c, BackendKind::kShm);
    const auto group = world->make_group("pair", {c.rank % 2, c.rank % 2 + 2});
    if (c.rank % 2 == 1) {
      at::Tensor tensor = at::ones({c.rank});
      EXPECT_THAT(distributed_error([&] { group->all_reduce(tensor, Reduction::kSum).wait(); }),
                  HasSubstr("rank 1 asks for all_reduce sum of Float [1], rank 3 for all_reduce "
                            "sum of Float [3]"));
    }
    world->group()->barrier();
  });
}

TEST(GroupErrors, GlooTextIsOneLine) {
  const auto body = [](const RankContext& c) {
    const auto world = world_of(c, BackendKind::kGloo);
    world->group()->barrier();
    // Or a write to the dead peer would end this process.
    struct sigaction action {};
    ::sigaction(SIGPIPE, nullptr, &action);
    EXPECT_EQ(action.sa_handler, SIG_IGN);
    if (c.rank == 1) ::raise(SIGKILL);
    at::Tensor tensor = at::ones({4});
    const std::string text = distributed_error(
        [&] { world->group()->all_reduce(tensor, Reduction::kSum, "loss").wait(); });
    EXPECT_THAT(text, AllOf(StartsWith("rank 0, group world, all_reduce #2 (loss): "),
                            Not(HasSubstr("\n")), Not(HasSubstr(".cc:"))));
  };
  EXPECT_EQ(run_ranks(2, body, 20), (std::vector<int>{0, 128 + SIGKILL}));
}

TEST(GroupErrors, GlooTimeOut) {
  expect_ranks(2, [](const RankContext& c) {
    const auto world = world_of(c, BackendKind::kGloo, std::chrono::milliseconds(500));
    if (c.rank == 1) {
      c.store->wait({"seen"});
      return;
    }
    at::Tensor tensor = at::ones({4});
    EXPECT_THAT(
        distributed_error([&] { world->group()->all_reduce(tensor, Reduction::kSum).wait(); }),
        AllOf(StartsWith("rank 0, group world, all_reduce #1: "), HasSubstr("500"),
              Not(HasSubstr("\n"))));
    c.store->set("seen", "1");
  });
}

TEST(GroupLog, KnowsWhatIsOpen) {
  expect_ranks(2, [](const RankContext& c) {
    const auto world = world_of(c, BackendKind::kShm);
    const auto log = world->group()->log();
    EXPECT_FALSE(log->oldest_open());
    EXPECT_EQ(log->last_issued().sequence, 0u);
    if (c.rank == 0) {
      at::Tensor tensor = at::ones({4});
      Pending first = world->group()->all_reduce(tensor, Reduction::kSum, "one");
      Pending second = world->group()->broadcast(tensor, 0, "two");
      const auto waiting = log->oldest_open();
      ASSERT_TRUE(waiting);
      EXPECT_EQ(waiting->name.operation, "all_reduce");
      EXPECT_EQ(waiting->name.sequence, 1u);
      EXPECT_EQ(waiting->name.label, "one");
      EXPECT_EQ(log->last_issued().label, "two");
      c.store->set("looked", "1");
      second.wait();
      EXPECT_FALSE(log->oldest_open());  // complete, though nobody has waited for the first
      return;
    }
    c.store->wait({"looked"});
    at::Tensor tensor = at::ones({4});
    world->group()->all_reduce(tensor, Reduction::kSum).wait();
    world->group()->broadcast(tensor, 0).wait();
  });
}

}  // namespace
}  // namespace shardloom::distributed::testing
