// What the other ranks see when one dies, leaves, is late, or asks for something else.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "shardloom/base/error.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr unsigned kLimitSeconds = 10;  // design: one failure ends all ranks within 10 s

void reduce_once(c10d::Backend& group, std::vector<int64_t> shape = {1000}) {
  std::vector<at::Tensor> tensors = {at::ones(shape)};
  group.allreduce(tensors)->wait();
}

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// Rank 1 of 3 ends by `end` after two collectives.
void expect_death_is_named(const std::function<void(c10d::Backend&)>& end, int code) {
  const auto body = [&](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm, "dp");
    for (int i = 0; i < 2; ++i) reduce_once(*group);
    if (c.rank == 1) end(*group);
    const std::string text = distributed_error([&] { reduce_once(*group); });
    EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("rank {}, group dp, all_reduce #3", c.rank)),
                            HasSubstr("rank 1 (pid "), HasSubstr("has ended")));
    EXPECT_THAT(distributed_error([&] { group->barrier()->wait(); }), HasSubstr("rank 1 (pid "));
  };
  EXPECT_EQ(run_ranks(3, body, kLimitSeconds), (std::vector<int>{0, code, 0}));
}

TEST(Failure, KilledRankIsNamed) {
  expect_death_is_named([](c10d::Backend&) { ::raise(SIGKILL); }, 128 + SIGKILL);
}

TEST(Failure, RankThatExitsIsNamed) {
  expect_death_is_named([](c10d::Backend&) { ::_exit(3); }, 3);
}

TEST(Failure, RankKilledInTheMiddleOfALargeCollective) {
  const auto body = [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    std::vector<at::Tensor> tensors = {at::ones({30'000'000})};
    group->barrier()->wait();
    const auto work = group->allreduce(tensors);
    if (c.rank == 1) ::raise(SIGKILL);
    EXPECT_THAT(distributed_error([&] { work->wait(); }), HasSubstr("rank 1 (pid "));
  };
  EXPECT_EQ(run_ranks(2, body, 2 * kLimitSeconds), (std::vector<int>{0, 128 + SIGKILL}));
}

TEST(Failure, RankThatDiesBeforeItJoins) {
  const auto body = [](const RankContext& c) {
    if (c.rank == 1) {
      c.store->set("shardloom/dp/pid/1", std::to_string(::getpid()));
      ::raise(SIGKILL);
    }
    const std::string text = distributed_error([&] { c.group(BackendKind::kShm, "dp"); });
    EXPECT_THAT(text, AllOf(HasSubstr("group dp, set-up"), HasSubstr("rank 1 (pid ")));
  };
  EXPECT_EQ(run_ranks(3, body, kLimitSeconds), (std::vector<int>{0, 128 + SIGKILL, 0}));
}

TEST(Failure, RankThatNeverComesIsNamed) {
  expect_ranks(2, [](const RankContext& c) {
    if (c.rank == 1) return;
    const std::string text = distributed_error(
        [&] { c.group(BackendKind::kShm, "dp", std::chrono::milliseconds(100)); });
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank 0, group dp, set-up: rank 1 has not come within 100 ms")));
  });
}

TEST(Failure, NameOfAGroupServesOnce) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm, "dp");
    EXPECT_THAT(distributed_error([&] { c.group(BackendKind::kShm, "dp"); }),
                HasSubstr("group dp, set-up: the name is taken"));
    reduce_once(*group);
  });
}

TEST(Failure, RankThatLeavesIsNamed) {
  expect_ranks(2, [](const RankContext& c) {
    auto group = c.group(BackendKind::kShm);
    reduce_once(*group);
    if (c.rank == 1) {
      group.reset();
      c.store->wait({"seen"});
      return;
    }
    EXPECT_THAT(distributed_error([&] { reduce_once(*group); }),
                AllOf(HasSubstr("rank 1 (pid "), HasSubstr("has left the group")));
    c.store->set("seen", "1");
  });
}

TEST(Failure, TimeOutNamesWhoIsMissing) {
  expect_ranks(4, [](const RankContext& c) {
    const auto group =
        c.group(BackendKind::kShm, "dp", std::chrono::milliseconds(c.rank == 2 ? 60'000 : 1500));
    reduce_once(*group);
    if (c.rank == 2) {
      c.store->wait({"0", "1", "3"});
      EXPECT_THAT(distributed_error([&] { reduce_once(*group); }), HasSubstr("timed out"));
      return;
    }
    EXPECT_THAT(distributed_error([&] { reduce_once(*group); }),
                AllOf(HasSubstr("all_reduce #2: timed out after 1500 ms"),
                      HasSubstr("not arrived: rank 2 (at #1)")));
    c.store->set(std::to_string(c.rank), "done");
  });
}

TEST(Failure, WaitWithATimeOutLeavesTheGroupWhole) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    if (c.rank == 1) c.store->wait({"waited"});
    std::vector<at::Tensor> tensors = {at::ones({5})};
    const auto work = group->allreduce(tensors);
    if (c.rank == 0) {
      EXPECT_THAT(distributed_error([&] { work->wait(std::chrono::milliseconds(50)); }),
                  AllOf(HasSubstr("not done after 50 ms"), HasSubstr("rank 1 (not started)")));
      c.store->set("waited", "1");
    }
    work->wait();
    EXPECT_TRUE(tensors[0].eq(2).all().item<bool>());
  });
}

TEST(Failure, AbortFailsOpenAndLaterCollectivesOfAll) {
  expect_ranks(2, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    if (c.rank == 0) {
      const auto work = group->barrier();
      EXPECT_FALSE(work->isCompleted());
      group->abort();
      EXPECT_THAT(distributed_error([&] { work->wait(); }), HasSubstr("aborted by rank 0"));
      c.store->set("aborted", "1");
    }
    c.store->wait({"aborted"});
    EXPECT_THAT(distributed_error([&] { reduce_once(*group); }), HasSubstr("aborted by rank 0"));
    c.store->add("seen", 1);
    while (c.store->add("seen", 0) < 2) ::usleep(1000);
  });
}

// Both ranks throw, and both texts name both requests.
void expect_mismatch(const std::function<void(const RankContext&, c10d::Backend&)>& body,
                     const std::string& a,
                     const std::string& b) {
  expect_ranks(2, [&](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    EXPECT_THAT(distributed_error([&] { body(c, *group); }), AllOf(HasSubstr(a), HasSubstr(b)));
    c.store->add("seen", 1);
    while (c.store->add("seen", 0) < 2) ::usleep(1000);
  });
}

TEST(Failure, DifferentShapes) {
  expect_mismatch(
      [](const RankContext& c, c10d::Backend& g) {
        reduce_once(g, {3, 4 + c.rank});
      },
      "rank 0 asks for all_reduce sum of Float [3, 4]",
      "rank 1 for all_reduce sum of Float [3, 5]");
}

TEST(Failure, DifferentTypes) {
  expect_mismatch(
      [](const RankContext& c, c10d::Backend& group) {
        std::vector<at::Tensor> tensors = {at::ones({6}, c.rank == 0 ? at::kFloat : at::kBFloat16)};
        group.allreduce(tensors)->wait();
      },
      "all_reduce sum of Float [6]", "all_reduce sum of BFloat16 [6]");
}

TEST(Failure, DifferentCollectives) {
  expect_mismatch(
      [](const RankContext& c, c10d::Backend& group) {
        if (c.rank == 0) return void(group.barrier()->wait());
        reduce_once(group, {7});
      },
      "rank 0 asks for barrier", "rank 1 for all_reduce sum of Float [7]");
}

TEST(Failure, SplitsThatDoNotFit) {
  expect_mismatch(
      [](const RankContext& c, c10d::Backend& group) {
        at::Tensor input = at::ones({4});
        at::Tensor output = at::ones({4});
        std::vector<int64_t> sent = {1, 3};
        std::vector<int64_t> received = {2, 2};
        group.alltoall_base(output, input, received, sent)->wait();
      },
      "rank 0 sends 4 bytes to rank 0, which expects 8", "all_to_all of Float [4]");
}

TEST(Failure, WrongArgumentsAreRefusedAtOnce) {
  expect_ranks(1, [](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    at::Tensor three = at::ones({3});
    at::Tensor four = at::ones({4});
    EXPECT_THAT(distributed_error([&] { group->_allgather_base(four, three); }),
                HasSubstr("3 elements from each of 1 ranks do not fill an output of 4"));
    at::Tensor strided = at::ones({3, 2}).t();
    at::Tensor input = at::ones({2, 3});
    EXPECT_THAT(distributed_error([&] { group->_allgather_base(strided, input); }),
                HasSubstr("contiguous"));
    std::vector<at::Tensor> integers = {at::ones({3}, at::kLong)};
    c10d::AllreduceOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    EXPECT_THAT(distributed_error([&] { group->allreduce(integers, average); }),
                HasSubstr("Long is not supported"));
    reduce_once(*group);
  });
}

// While a group lives its memory is mapped, but under no name; nor is there one after a crash.
TEST(Failure, NothingIsLeftInDevShm) {
  const auto before = names_in("/dev/shm");
  const auto body = [&](const RankContext& c) {
    const auto group = c.group(BackendKind::kShm);
    reduce_once(*group);
    std::ifstream maps("/proc/self/maps");
    const std::string text((std::istreambuf_iterator<char>(maps)),
                           std::istreambuf_iterator<char>());
    EXPECT_THAT(text, HasSubstr("/memfd:shardloom (deleted)"));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("/dev/shm")));
    ::raise(SIGKILL);
  };
  EXPECT_EQ(run_ranks(2, body, kLimitSeconds), std::vector<int>(2, 128 + SIGKILL));
  for (const std::string& name : names_in("/dev/shm")) {
    EXPECT_TRUE(before.contains(name) || name.find("shardloom") == name.npos) << name;
  }
}

}  // namespace
}  // namespace shardloom::distributed::testing
