// The environment of a rank, the store of the world, and the choice of a backend.
#include "shardloom/distributed/process_group.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <cstdlib>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/distributed/local_address.h"
#include "shardloom/distributed/world.h"
#include "tests/distributed/ranks.h"

namespace shardloom::distributed::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Environment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
    set("RANK", "3");
    set("WORLD_SIZE", "8");
    set("MASTER_ADDR", "node7");
    set("MASTER_PORT", "29501");
  }
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
  }

  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }

  static std::string config_error() {
    try {
      WorldOptions::from_environment();
    } catch (const ConfigError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no ConfigError";
    return "";
  }

  static constexpr const char* kNames[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "TORCHELASTIC_RESTART_COUNT"};
};

TEST_F(Environment, IsRead) {
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "2");
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("TORCHELASTIC_RESTART_COUNT", "2");
  const WorldOptions world = WorldOptions::from_environment();
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.world_size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_world_size, 2);
  EXPECT_EQ(world.master_addr, "node7");
  EXPECT_EQ(world.master_port, 29501);
  EXPECT_TRUE(world.use_agent_store);
  EXPECT_EQ(world.agent_attempt, 2);
}

TEST_F(Environment, LocalNumbersDefaultToOneHost) {
  const WorldOptions world = WorldOptions::from_environment();
  EXPECT_EQ(world.local_rank, 3);
  EXPECT_EQ(world.local_world_size, 8);
  EXPECT_FALSE(world.use_agent_store);
}

TEST_F(Environment, AllMissingNamesAreListed) {
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("MASTER_PORT");
  EXPECT_THAT(config_error(), HasSubstr("WORLD_SIZE, MASTER_PORT not set"));
}

TEST_F(Environment, WrongPorts) {
  for (const char* port : {"0", "70000", "abc", "-1", "29501x", " 29501"}) {
    set("MASTER_PORT", port);
    EXPECT_THAT(config_error(),
                HasSubstr(fmt::format(
                    "MASTER_PORT must be a whole number from 1 to 65535, got '{}'", port)));
  }
}

TEST_F(Environment, RankBeyondTheWorld) {
  set("RANK", "8");
  EXPECT_THAT(config_error(), HasSubstr("RANK is 8, but ranks count from 0 to WORLD_SIZE - 1 = 7"));
}

TEST_F(Environment, LocalRankBeyondTheHost) {
  set("LOCAL_RANK", "2");
  set("LOCAL_WORLD_SIZE", "2");
  EXPECT_THAT(config_error(), HasSubstr("LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"));
}

TEST_F(Environment, MoreRanksOnTheHostThanInTheWorld) {
  set("LOCAL_WORLD_SIZE", "9");
  EXPECT_THAT(config_error(), HasSubstr("LOCAL_WORLD_SIZE is 9, but WORLD_SIZE is 8"));
}

TEST_F(Environment, SeveralProblemsInOneMessage) {
  set("RANK", "-1");
  set("WORLD_SIZE", "two");
  set("MASTER_PORT", "0");
  EXPECT_THAT(config_error(),
              AllOf(HasSubstr("RANK must be"), HasSubstr("got '-1'"), HasSubstr("got 'two'"),
                    HasSubstr("MASTER_PORT"), Not(HasSubstr("not set"))));
}

// A socket that listens on a free port of loopback.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET6, SOCK_STREAM, 0)) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, generic, length), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, generic, &length);
    port_ = ntohs(address.sin6_port);
  }
  ~TakenPort() { release(); }
  void release() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  uint16_t port() const { return port_; }

 private:
  int socket_;
  uint16_t port_ = 0;
};

WorldOptions world_at(uint16_t port, int rank, int size) {
  WorldOptions options;
  options.rank = rank;
  options.world_size = size;
  options.master_port = port;
  return options;
}

TEST(ConnectStore, PortInUse) {
  const TakenPort taken;
  WorldOptions world;
  world.master_port = taken.port();
  EXPECT_THAT(
      distributed_error([&] { connect_store(world, std::chrono::seconds(2)); }),
      HasSubstr(fmt::format("cannot listen on 127.0.0.1:{}: the port is in use", taken.port())));
}

TEST(ConnectStore, ListenerThatIsNoStore) {
  // In a process of its own: a thread is left behind.
  expect_ranks(1, [](const RankContext&) {
    const TakenPort taken;
    EXPECT_THAT(distributed_error([&] {
                  connect_store(world_at(taken.port(), 1, 2), std::chrono::milliseconds(300));
                }),
                AllOf(HasSubstr(fmt::format("127.0.0.1:{} does not answer", taken.port())),
                      HasSubstr("MASTER_PORT")));
  });
}

TEST(ConnectStore, HostWithoutAddress) {
  WorldOptions world;
  world.master_addr = "no-such-host.invalid";
  world.master_port = 29533;
  EXPECT_THAT(distributed_error([&] { connect_store(world); }),
              HasSubstr("cannot resolve the host of no-such-host.invalid:29533"));
}

TEST(ConnectStore, NobodyAnswers) {
  TakenPort taken;
  taken.release();
  WorldOptions world;
  world.rank = 1;
  world.world_size = 2;
  world.master_port = taken.port();
  EXPECT_THAT(distributed_error([&] { connect_store(world, std::chrono::milliseconds(500)); }),
              HasSubstr(fmt::format("no store at 127.0.0.1:{}", taken.port())));
}

class RanksMeet : public ::testing::TestWithParam<std::tuple<const char*, BackendKind>> {};
INSTANTIATE_TEST_SUITE_P(Addresses,
                         RanksMeet,
                         ::testing::Combine(::testing::Values("127.0.0.1", "localhost", "::1"),
                                            ::testing::Values(BackendKind::kAuto,
                                                              BackendKind::kGloo)));

TEST_P(RanksMeet, AndTalk) {
  const auto& [address, backend] = GetParam();
  if (address == std::string("::1") && !local_address_towards("::1", 1)) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  TakenPort taken;
  taken.release();
  expect_ranks(2, [&, address = address, backend = backend](const RankContext& c) {
    WorldOptions options = world_at(taken.port(), c.rank, c.size);
    options.master_addr = address;
    const auto world = World::connect(options, backend);
    EXPECT_EQ(world->group()->backend_name(), backend == BackendKind::kAuto ? "shm" : "gloo");
    at::Tensor tensor = at::full({4}, c.rank + 1, at::kFloat);
    world->group()->all_reduce(tensor, Reduction::kSum).wait();
    EXPECT_TRUE(tensor.eq(3).all().item<bool>());
    world->group()->barrier();
  });
}

// torchrun's agent serves the store: rank 0 is a client, too.
TEST(ConnectStore, StoreOfAnAgent) {
  TakenPort taken;
  taken.release();
  expect_ranks(3, [&](const RankContext& c) {
    if (c.rank == 2) {
      c10d::TCPStoreOptions agent;
      agent.port = taken.port();
      agent.isServer = true;
      agent.waitWorkers = false;
      const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", agent);
      c.store->wait({"done/0", "done/1"});
      return;
    }
    WorldOptions options = world_at(taken.port(), c.rank, 2);
    options.use_agent_store = true;
    for (const int attempt : {0, 1}) {  // the store outlives a restart
      options.agent_attempt = attempt;
      const auto world = World::connect(options);
      world->group()->barrier();
    }
    c.store->set(fmt::format("done/{}", c.rank), "1");
  });
}

// Ranks 1 and 2 belong to another run, whose rank 0 could not get the port.
TEST(ConnectStore, ProcessesOfAnotherRunAreRefused) {
  TakenPort taken;
  taken.release();
  expect_ranks(4, [&](const RankContext& c) {
    const std::string place = fmt::format("127.0.0.1:{}", taken.port());
    if (c.rank == 3) {
      c.store->wait({"rank 0 is there"});
      EXPECT_THAT(
          distributed_error([&] { connect_store(world_at(taken.port(), 1, 3)); }),
          HasSubstr(fmt::format("rank 1: the run at {} has WORLD_SIZE 2, this process 3", place)));
      c.store->set("refused/3", "1");
      return;
    }
    if (c.rank == 2) {
      c.store->wait({"rank 1 is there"});
      EXPECT_THAT(distributed_error([&] { connect_store(world_at(taken.port(), 1, 2)); }),
                  HasSubstr(fmt::format("rank 1: the run at {} has a rank 1 already", place)));
      c.store->set("refused/2", "1");
      return;
    }
    const auto store = connect_store(world_at(taken.port(), c.rank, 2));
    c.store->set(fmt::format("rank {} is there", c.rank), "1");
    c.store->wait({"refused/2", "refused/3"});
  });
}

// 192.0.2.0/24 belongs to no host; the rank that serves gets no hint to look for another one.
TEST(ConnectStore, MasterAddressThatIsNotThisHost) {
  TakenPort taken;
  taken.release();
  WorldOptions options = world_at(taken.port(), 0, 2);
  options.master_addr = "192.0.2.77";
  EXPECT_THAT(distributed_error([&] { connect_store(options, std::chrono::milliseconds(500)); }),
              AllOf(HasSubstr(fmt::format("no store at 192.0.2.77:{}", taken.port())),
                    HasSubstr("is MASTER_ADDR an address of this host?")));
}

TEST(LocalAddress, TowardsOwnAddresses) {
  EXPECT_EQ(local_address_towards("127.0.0.1", 80), "127.0.0.1");
  EXPECT_EQ(local_address_towards("no-such-host.invalid", 80), std::nullopt);
}

// Not over the one of the host's name, which often is loopback. The error names the peer's address.
TEST(MakeBackend, GlooTalksOverTheInterfaceTowardsTheStore) {
  const auto own = local_address_towards("192.0.2.77", 1);
  if (!own || *own == "127.0.0.1") GTEST_SKIP() << "this host has no network";
  TakenPort taken;
  taken.release();
  const auto body = [&](const RankContext& c) {
    WorldOptions options = world_at(taken.port(), c.rank, c.size);
    options.master_addr = *own;
    const auto world = World::connect(options, BackendKind::kGloo);
    world->group()->barrier();
    if (c.rank == 1) ::raise(SIGKILL);
    EXPECT_THAT(distributed_error([&] { world->group()->barrier(); }),
                HasSubstr(fmt::format("[{}]:", *own)));
  };
  EXPECT_EQ(run_ranks(2, body), (std::vector<int>{0, 128 + SIGKILL}));
}

// A single host without DNS: its own name leads nowhere.
TEST(MakeBackend, HostNameWithoutAddress) {
  expect_ranks(2, [](const RankContext& c) {
    const std::string name = "no-such-host.invalid";
    if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname(name.data(), name.size()) != 0) {
      GTEST_SKIP() << "may not change the name of the host";
    }
    for (const BackendKind kind : {BackendKind::kAuto, BackendKind::kGloo}) {
      const auto group = c.group(kind, fmt::format("group {}", static_cast<int>(kind)));
      std::vector<at::Tensor> tensors = {at::ones({4})};
      group->allreduce(tensors)->wait();
      EXPECT_TRUE(tensors[0].eq(2).all().item<bool>());
      group->barrier()->wait();
    }
  });
}

TEST(MakeBackend, GlooForRanksOnSeveralHosts) {
  expect_ranks(2, [](const RankContext& c) {
    // A third member of another host: its key is what that host would write.
    c.store->set("shardloom/far/host/2", "another host");
    const std::string text = distributed_error([&] {
      make_backend(BackendKind::kAuto, c.store, c.rank, 3, "far", std::chrono::milliseconds(500));
    });
    EXPECT_THAT(text, HasSubstr("gloo cannot connect the 3 ranks"));
  });
}

TEST(MakeBackend, RankThatNeverComesIsNamed) {
  expect_ranks(1, [](const RankContext& c) {
    ::setenv("SHARDLOOM_WATCHDOG_SECONDS", "0.2", 1);
    ::testing::internal::CaptureStderr();
    EXPECT_THAT(distributed_error([&] {
                  make_backend(BackendKind::kAuto, c.store, 0, 2, "half",
                               std::chrono::milliseconds(500));
                }),
                HasSubstr("rank 0, group half, set-up: rank 1 has not come within"));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("waiting for rank 1 since"));
  });
}

// Numbers of process spaces and users are alike on different hosts.
TEST(MakeBackend, AHostIsKnownByItsBoot) {
  expect_ranks(2, [](const RankContext& c) {
    make_backend(BackendKind::kAuto, c.store, c.rank, 2, "near", std::chrono::seconds(60));
    std::string boot = read_file("/proc/sys/kernel/random/boot_id");
    boot.pop_back();
    EXPECT_THAT(c.store->get_to_str("shardloom/near/host/0"), HasSubstr(boot));
  });
}

TEST(MakeBackend, UnknownInterfaceIsNamed) {
  expect_ranks(1, [](const RankContext& c) {
    ::setenv("GLOO_SOCKET_IFNAME", "wrong0", 1);
    try {
      c.group(BackendKind::kGloo);
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'wrong0'"), HasSubstr("lo")));
    }
  });
}

TEST(MakeBackend, KindsByName) {
  EXPECT_EQ(parse_backend_kind("auto"), BackendKind::kAuto);
  EXPECT_EQ(parse_backend_kind("gloo"), BackendKind::kGloo);
  EXPECT_EQ(parse_backend_kind("shm"), BackendKind::kShm);
  EXPECT_EQ(parse_backend_kind("nccl"), BackendKind::kNccl);
  EXPECT_EQ(parse_backend_kind("fake"), BackendKind::kFake);
  try {
    parse_backend_kind("glo");
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean gloo?"));
  }
}

// With a device it works; without one, or without its libraries, the error says what is missing.
TEST(MakeBackend, NcclWorksOrSaysWhatIsMissing) {
  expect_ranks(1, [](const RankContext&) {
    std::shared_ptr<World> world;
    try {
      world = World::alone(c10::Device(c10::kCUDA));
    } catch (const DistributedError& error) {
      EXPECT_THAT(error.what(), AllOf(StartsWith("rank 0, group world, set-up: "),
                                      ContainsRegex("this build has no nccl backend: there is no|"
                                                    "the nccl backend cannot be loaded: lib|"
                                                    "the nccl backend cannot start: .*GPU"),
                                      Not(HasSubstr("\n"))));
      return;
    }
    EXPECT_EQ(world->group()->backend_name(), "nccl");
    at::Tensor tensor = at::ones({3}, at::Device(at::kCUDA));
    world->group()->all_reduce(tensor, Reduction::kAverage).wait();
    EXPECT_TRUE(tensor.eq(1).all().item<bool>());
    world->group()->barrier();
  });
}

TEST(FakeBackend, AllGatherFillsEverySlotAndOthersLeaveOutputs) {
  const auto group = make_backend(BackendKind::kFake, nullptr, 5, 64, "any");
  EXPECT_EQ(group->getRank(), 5);
  EXPECT_EQ(group->getSize(), 64);
  at::Tensor input = at::arange(3, at::kFloat);
  at::Tensor output = at::zeros({64, 3});
  EXPECT_TRUE(group->_allgather_base(output, input)->wait());
  EXPECT_TRUE(output.eq(input).all().item<bool>());
  std::vector<std::vector<at::Tensor>> lists = {{at::zeros({3}), at::zeros({3})}};
  std::vector<at::Tensor> inputs = {input};
  group->allgather(lists, inputs)->wait();
  EXPECT_TRUE(lists[0][1].eq(input).all().item<bool>());
  at::Tensor kept = at::full({1}, 7.f);
  at::Tensor wide = at::zeros({64});
  const auto work = group->_reduce_scatter_base(kept, wide);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_EQ(kept.item<float>(), 7);
  EXPECT_EQ(group->getSequenceNumberForGroup(), 3u);
}

}  // namespace
}  // namespace shardloom::distributed::testing
