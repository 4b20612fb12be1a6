// Many collectives, several groups, and the order of asynchronous work.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

TEST(Order, ThousandSmallCollectivesBackToBack) {
  expect_ranks(3, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    int wrong = 0;
    for (int step = 0; step < 1000; ++step) {
      std::vector<at::Tensor> tensors = {at::full({3}, c.rank + step, at::kLong)};
      group->allreduce(tensors)->wait();
      wrong += tensors[0].ne(3 * step + 3).any().item<bool>();
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(group->getSequenceNumberForGroup(), 1000u);
  });
}

TEST(Order, WorksMayBeWaitedForInAnyOrder) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<at::Tensor> outputs;
    for (int i = 0; i < 20; ++i) {
      at::Tensor input = at::full({50'000 * (i % 4)}, c.rank * 100 + i, at::kFloat);
      outputs.push_back(at::empty({2, input.numel()}));
      works.push_back(group->_allgather_base(outputs.back(), input));
      EXPECT_EQ(works.back()->getSequencenumber(), static_cast<uint64_t>(i + 1));
    }
    for (int i = 19; i >= 0; --i) works[i]->wait();
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(outputs[i][0].eq(i).all().item<bool>());
      EXPECT_TRUE(outputs[i][1].eq(100 + i).all().item<bool>());
    }
  });
}

// Each collective writes what the one before it has made: right only in the order of issue.
TEST(Order, WorkRunsInTheOrderOfIssue) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    std::vector<at::Tensor> tensors = {at::ones({300'000})};
    c10::intrusive_ptr<c10d::Work> last;
    for (int i = 0; i < 10; ++i) last = group->allreduce(tensors);
    last->wait();
    EXPECT_TRUE(tensors[0].eq(1024).all().item<bool>());
  });
}

TEST(Order, AWorkThatIsDroppedStillRuns) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    std::vector<at::Tensor> tensors = {at::ones({4})};
    group->allreduce(tensors);
    group->barrier()->wait();
    EXPECT_TRUE(tensors[0].eq(2).all().item<bool>());
  });
}

TEST(Order, TwoGroupsInterleaved) {
  expect_ranks(4, [](const RankContext& c) {
    const auto world = c.group(BackendKind::kShm, "world");
    const auto pair =
        make_backend(BackendKind::kShm, c.store, c.rank % 2, 2, fmt::format("pair{}", c.rank / 2));
    for (int step = 0; step < 50; ++step) {
      std::vector<at::Tensor> of_world = {at::full({1000}, c.rank + step, at::kFloat)};
      std::vector<at::Tensor> of_pair = {at::full({2000}, c.rank + step, at::kFloat)};
      const auto first = world->allreduce(of_world);
      const auto second = pair->allreduce(of_pair);
      second->wait();
      first->wait();
      ASSERT_TRUE(of_world[0].eq(6 + 4 * step).all().item<bool>());
      ASSERT_TRUE(of_pair[0].eq(4 * (c.rank / 2) + 1 + 2 * step).all().item<bool>());
    }
  });
}

TEST(Order, BarrierHoldsUntilTheLastHasCome) {
  expect_ranks(3, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    if (c.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      c.store->set("late", "yes");
    }
    group->barrier()->wait();
    EXPECT_TRUE(c.store->check({"late"}));
  });
}

// The same bits whatever the timing: each round another rank is late.
TEST(Order, SumsDoNotDependOnTheTiming) {
  expect_ranks(3, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    at::Tensor first;
    for (int late = 0; late < 3; ++late) {
      std::vector<at::Tensor> tensors = {rank_values(c.rank, {400'000}, at::kFloat)};
      if (c.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group->allreduce(tensors)->wait();
      if (late == 0) first = tensors[0];
      EXPECT_TRUE(same_bits(tensors[0], first));
    }
  });
}

}  // namespace
}  // namespace shardloom::distributed::testing
