// What the watchdog says, and that nothing it does holds up a run.
#include "shardloom/distributed/watchdog.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <sys/file.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/distributed/watchdog_report.h"
#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::distributed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void pause_shortly() { ::usleep(10'000); }

// Standard error of this process, from now on.
class StandardError {
 public:
  StandardError() {
    const int file = ::open(path().c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    EXPECT_GE(::dup2(file, STDERR_FILENO), 0);
    ::close(file);
  }
  std::string text() const { return read_file(path().string()); }
  // Blocks until it holds `part`; the time is bounded by the alarm of the rank.
  void await(const std::string& part) const {
    while (text().find(part) == std::string::npos) pause_shortly();
  }

 private:
  std::filesystem::path path() const { return folder_.path() / "stderr"; }
  TemporaryFolder folder_;
};

std::shared_ptr<World> watched_world(const RankContext& c, BackendKind backend) {
  ::setenv("SHARDLOOM_WATCHDOG_SECONDS", "0.4", 1);
  return World::over(c.store, c.rank, c.size, backend);
}

// Until the watchdog of the rank has written that it has issued this many collectives of `world`.
void await_published(const RankContext& c, int rank, int sequence) {
  const std::string key = fmt::format("shardloom/watchdog/{}", rank);
  const std::string part = fmt::format("world 0..{}/1\t{}\t", c.size - 1, sequence);
  while (!c.store->check({key}) || c.store->get_to_str(key).find(part) == std::string::npos) {
    pause_shortly();
  }
}

class Watched : public ::testing::TestWithParam<BackendKind> {};
INSTANTIATE_TEST_SUITE_P(Backends,
                         Watched,
                         ::testing::Values(BackendKind::kShm, BackendKind::kGloo),
                         [](const auto& info) { return suffix(info.param); });

TEST_P(Watched, NamesTheRankThatHasNotComeAndItsLastCollective) {
  expect_ranks(3, [](const RankContext& c) {
    const StandardError error;
    const auto world = watched_world(c, GetParam());
    Group& group = *world->group();
    at::Tensor part = at::ones({1});
    at::Tensor whole = at::ones({3});
    group.reduce_scatter(part, whole, Reduction::kSum, "unit mlp1").wait();
    if (c.rank == 1) {
      c.store->wait({"seen"});
    } else {
      await_published(c, 1, 1);
    }
    Pending gather = group.all_gather(whole, part, "unit layers.3");
    if (c.rank == 0) await_published(c, 2, 2);
    if (c.rank == 2) await_published(c, 0, 2);
    if (c.rank != 1) {
      error.await("waiting 0.");
      EXPECT_THAT(error.text(), HasSubstr(" s in group world, all_gather #2 (unit layers.3) for "
                                          "rank 1, which has issued #1 last (reduce_scatter, unit "
                                          "mlp1)\n"));
      if (c.store->add("told", 1) == 2) c.store->set("seen", "1");
    }
    gather.wait();
    EXPECT_TRUE(whole.eq(3).all().item<bool>());
    group.barrier();
    // Once for a collective, and only by those who wait.
    const std::string text = error.text();
    EXPECT_EQ(text.find("all_gather #2"), text.rfind("all_gather #2"));
    if (c.rank == 1) {
      EXPECT_THAT(text, Not(HasSubstr("all_gather #2")));
    }
  });
}

// Not in the middle of a store operation, whose lock would stop this process too.
void stop_outside_of_the_store(const RankContext& c, pid_t pid) {
  const std::string path = dynamic_cast<c10d::FileStore&>(*c.store).getPath();
  const int file = ::open(path.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  EXPECT_EQ(::kill(pid, SIGSTOP), 0);
  for (std::string state; state != "T";) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    stat >> state >> state >> state;
  }
  ::close(file);
}

TEST(Watchdog, SaysWhenAllHaveCome) {
  expect_ranks(2, [](const RankContext& c) {
    const StandardError error;
    const auto world = watched_world(c, BackendKind::kShm);
    Group& group = *world->group();
    group.barrier();
    at::Tensor tensor = at::ones({2});
    if (c.rank == 1) {
      c.store->set("pid", std::to_string(::getpid()));
      group.all_reduce(tensor, Reduction::kSum, "loss").wait();
      return;
    }
    const pid_t other = std::stoi(c.store->get_to_str("pid"));
    await_published(c, 1, 2);
    stop_outside_of_the_store(c, other);
    Pending sum = group.all_reduce(tensor, Reduction::kSum, "loss");
    error.await("all_reduce #2");
    ASSERT_EQ(::kill(other, SIGCONT), 0);
    sum.wait();
    EXPECT_THAT(error.text(), HasSubstr("all_reduce #2 (loss): all 2 ranks have issued it, but it "
                                        "is not done; look at host "));
  });
}

int num_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST(Watchdog, ZeroTurnsItOff) {
  expect_ranks(2, [](const RankContext& c) {
    const int before = num_threads();
    ::setenv("SHARDLOOM_WATCHDOG_SECONDS", "0", 1);
    auto world = World::over(c.store, c.rank, c.size, BackendKind::kShm);
    EXPECT_EQ(num_threads(), before + 1);  // the thread of the group
    world->group()->barrier();
  });
}

TEST(Watchdog, EndsWithItsWorld) {
  expect_ranks(2, [](const RankContext& c) {
    const int before = num_threads();
    auto world = watched_world(c, BackendKind::kShm);
    EXPECT_EQ(num_threads(), before + 2);
    world->group()->barrier();
    world.reset();
    // The kernel takes a thread off the list a moment after it can be joined.
    while (num_threads() != before) pause_shortly();
  });
}

c10::intrusive_ptr<c10d::Store> tcp_store(const RankContext& c) {
  c10d::TCPStoreOptions options;
  options.isServer = c.rank == 0;
  options.waitWorkers = false;
  options.port = 0;  // the system chooses
  if (c.rank != 0) options.port = static_cast<uint16_t>(std::stoi(c.store->get_to_str("port")));
  auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  if (c.rank == 0) c.store->set("port", std::to_string(store->getPort()));
  return store;
}

TEST(Watchdog, ReportsWithoutNamesWhenTheStoreIsGone) {
  const auto body = [](const RankContext& c) {
    const auto store = tcp_store(c);
    if (c.rank == 0) {
      c.store->wait({"connected"});
      ::raise(SIGKILL);
    }
    const auto log = std::make_shared<CollectiveLog>("dp", std::vector<int>{0, 1}, 1);
    std::promise<std::string> report;
    Watchdog watchdog(store, 1, std::chrono::milliseconds(400),
                      [&](const std::string& text) { report.set_value(text); });
    watchdog.watch(log);
    OpenCollective open{.operation = "all_gather", .sequence = 1, .issued = Clock::now()};
    open.work = c10::make_intrusive<c10d::Work>();
    log->open(open);
    while (!store->check({"shardloom/watchdog/1"})) pause_shortly();
    c.store->set("connected", "1");
    EXPECT_THAT(report.get_future().get(),
                HasSubstr("in group dp, all_gather #1; the store of the run is gone"));
  };
  EXPECT_EQ(run_ranks(2, body, 30), (std::vector<int>{128 + SIGKILL, 0}));
}

// Rank 0, which serves the store, is stopped while the watchdog of rank 1 talks to it.
TEST(Watchdog, AStoreThatHangsDoesNotHoldUpTheEnd) {
  expect_ranks(2, [](const RankContext& c) {
    ::setenv("SHARDLOOM_WATCHDOG_SECONDS", "0.2", 1);
    auto world = World::over(tcp_store(c), c.rank, c.size, BackendKind::kShm);
    world->group()->barrier();
    if (c.rank == 0) {
      c.store->set("pid", std::to_string(::getpid()));
      c.store->wait({"end"});
      return;
    }
    const pid_t server = std::stoi(c.store->get_to_str("pid"));
    ::kill(server, SIGSTOP);
    at::Tensor tensor = at::ones({2});
    Pending sum = world->group()->all_reduce(tensor, Reduction::kSum);
    ::usleep(400'000);  // the watchdog wants to publish that
    world.reset();
    ::kill(server, SIGCONT);
    c.store->set("end", "1");
  });
}

TEST(Watchdog, LimitsFromTheEnvironment) {
  expect_ranks(1, [](const RankContext&) {
    EXPECT_EQ(watchdog_limit(), std::chrono::seconds(60));
    EXPECT_EQ(default_timeout(), std::chrono::minutes(10));
    ::setenv("SHARDLOOM_WATCHDOG_SECONDS", "2.5", 1);
    ::setenv("SHARDLOOM_TIMEOUT_SECONDS", "3600", 1);
    EXPECT_EQ(watchdog_limit(), std::chrono::milliseconds(2500));
    EXPECT_EQ(default_timeout(), std::chrono::hours(1));
    for (const char* wrong : {"-1", "1m", "nan", "inf", "1e10", " 3"}) {
      ::setenv("SHARDLOOM_TIMEOUT_SECONDS", wrong, 1);
      try {
        default_timeout();
        ADD_FAILURE() << wrong;
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("SHARDLOOM_TIMEOUT_SECONDS must be a number of seconds"),
                          HasSubstr(fmt::format("got '{}'", wrong))));
      }
    }
    ::setenv("SHARDLOOM_TIMEOUT_SECONDS", "0", 1);
    EXPECT_THROW(default_timeout(), ConfigError);
  });
}

TEST(Watchdog, TimeOutOfTheEnvironmentEndsTheWait) {
  expect_ranks(2, [](const RankContext& c) {
    ::setenv("SHARDLOOM_TIMEOUT_SECONDS", c.rank == 0 ? "0.7" : "60", 1);
    const auto world = World::over(c.store, c.rank, c.size, BackendKind::kShm);
    if (c.rank == 1) return c.store->wait({"seen"});
    EXPECT_THAT(distributed_error([&] { world->group()->barrier("end of step"); }),
                AllOf(HasSubstr("rank 0, group world, barrier #1 (end of step): timed out after "
                                "700 ms"),
                      HasSubstr("rank 1 (not started)")));
    c.store->set("seen", "1");
  });
}

LongWait long_wait() {
  return {.group = "dp",
          .key = "dp 0..3/1",
          .name = {"all_gather", 12, "unit a"},
          .seconds = 60.04,
          .ranks = {0, 1, 2, 3}};
}

RankRecord record_of(const CollectiveName& last, const std::string& host = "h1") {
  return {.host = host, .last = {{"dp 0..3/1", last}, {"other 0..3/1", {"barrier", 99, ""}}}};
}

TEST(WatchdogReport, RecordsComeBack) {
  const RankRecord record = record_of({"all_gather", 12, "unit\ta\nb"});
  const RankRecord back = RankRecord::decode(record.encode());
  EXPECT_EQ(back.host, "h1");
  ASSERT_EQ(back.last.size(), 2u);
  EXPECT_EQ(back.last.at("dp 0..3/1").sequence, 12u);
  EXPECT_EQ(back.last.at("dp 0..3/1").operation, "all_gather");
  EXPECT_EQ(back.last.at("dp 0..3/1").label, "unit a b");
  EXPECT_EQ(back.last.at("other 0..3/1").label, "");
  EXPECT_TRUE(RankRecord::decode("").last.empty());
}

TEST(WatchdogReport, EachKindOfAbsence) {
  const auto here = record_of({"all_gather", 12, "unit a"});
  EXPECT_EQ(long_wait_text(long_wait(), {here, record_of({"reduce_scatter", 11, "unit b"}),
                                         std::nullopt, RankRecord{.host = "h1"}}),
            "waiting 60 s in group dp, all_gather #12 (unit a) for rank 1, which has issued #11 "
            "last (reduce_scatter, unit b); rank 2, of which nothing is known; rank 3, which has "
            "issued nothing there yet");
  EXPECT_EQ(long_wait_text(long_wait(), {here, here, record_of({"all_gather", 14, "unit c"}),
                                         record_of({"broadcast", 12, ""})}),
            "waiting 60 s in group dp, all_gather #12 (unit a) for rank 3, which has issued "
            "something else as #12 (broadcast)");
}

TEST(WatchdogReport, AllHaveCome) {
  const auto one = record_of({"all_gather", 12, ""});
  const auto two = record_of({"all_gather", 13, ""}, "h2");
  EXPECT_EQ(long_wait_text(long_wait(), {one, one, one, two}),
            "waiting 60 s in group dp, all_gather #12 (unit a): all 4 ranks have issued it, but it "
            "is not done; look at the network between the hosts h1, h2");
  EXPECT_THAT(long_wait_text(long_wait(), {one, one, one, one}),
              HasSubstr("look at host h1: its load, and whether a process is stopped"));
}

TEST(WatchdogReport, ManyAbsentRanksAreCounted) {
  LongWait wait = long_wait();
  wait.ranks.resize(100);
  const std::string text = long_wait_text(wait, std::vector<std::optional<RankRecord>>(100));
  EXPECT_THAT(text, HasSubstr("of which nothing is known; and 92 more"));
}

}  // namespace
}  // namespace shardloom::distributed::testing
