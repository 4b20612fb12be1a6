// connect_store(): the store of a world.
#include <netdb.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/distributed/foreign_error.h"
#include "shardloom/distributed/process_group.h"
#include "shardloom/distributed/torch_log.h"

namespace shardloom::distributed {
namespace {

// TCPStore would try an unknown host again and again until its time is up.
void require_address(const std::string& host, const std::string& place) {
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (found != nullptr) ::freeaddrinfo(found);
  if (code == 0) return;
  throw DistributedError("cannot resolve the host of {}: {}; check MASTER_ADDR", place,
                         ::gai_strerror(code));
}

[[noreturn]] void throw_no_store(const WorldOptions& world,
                                 bool serves,
                                 const std::string& place,
                                 std::string_view text) {
  if (text.find("EADDRINUSE") != text.npos || text.find("in use") != text.npos) {
    throw DistributedError(
        "rank {}: cannot listen on {}: the port is in use; end the program that has it, or choose "
        "another MASTER_PORT",
        world.rank, place);
  }
  throw DistributedError("rank {}: no store at {} ({}); {}", world.rank, place, short_text(text),
                         serves ? "this rank serves it: is MASTER_ADDR an address of this host?"
                                : "is rank 0 running, and reachable there?");
}

// Two runs that were given one port would take each other's ranks for their own.
void join_run(c10d::Store& store, const WorldOptions& world, const std::string& place) {
  const std::string own_size = std::to_string(world.world_size);
  const std::string size = store.compareSet("shardloom/world_size", "", own_size);
  if (size != own_size) {
    throw DistributedError(
        "rank {}: the run at {} has WORLD_SIZE {}, this process {}; set it alike for all, or give "
        "another run its own MASTER_PORT",
        world.rank, place, size, own_size);
  }
  if (store.add(fmt::format("shardloom/joined/{}", world.rank), 1) > 1) {
    throw DistributedError(
        "rank {}: the run at {} has a rank {} already; give each process its own RANK, and each "
        "run its own MASTER_PORT",
        world.rank, place, world.rank);
  }
}

// TCPStore waits for ever for the answer of a program that is no store, so it does so in a thread,
// which is left behind then.
c10::intrusive_ptr<c10d::Store> open_store(const WorldOptions& world,
                                           const c10d::TCPStoreOptions& options,
                                           const std::string& place) {
  constexpr std::chrono::seconds kToAnswer{5};
  std::promise<c10::intrusive_ptr<c10d::Store>> promise;
  auto opened = promise.get_future();
  std::thread([host = world.master_addr, options, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(c10::make_intrusive<c10d::TCPStore>(host, options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (opened.wait_for(options.timeout + kToAnswer) == std::future_status::ready)
    return opened.get();
  throw DistributedError(
      "rank {}: what listens on {} does not answer as the store of a run; is it another program? "
      "Choose another MASTER_PORT for all",
      world.rank, place);
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_store(const WorldOptions& world,
                                              std::chrono::milliseconds timeout) {
  const bool is_ipv6 = world.master_addr.find(':') != std::string::npos;
  const std::string place = is_ipv6 ? fmt::format("[{}]:{}", world.master_addr, world.master_port)
                                    : fmt::format("{}:{}", world.master_addr, world.master_port);
  require_address(world.master_addr, place);
  c10d::TCPStoreOptions options;
  options.port = world.master_port;
  options.isServer = world.rank == 0 && !world.use_agent_store;
  options.waitWorkers = false;
  options.timeout = timeout;
  const QuietTorchLog quiet;
  try {
    c10::intrusive_ptr<c10d::Store> store = open_store(world, options, place);
    // The agent's store outlives a restart of its workers.
    if (world.use_agent_store) {
      store = c10::make_intrusive<c10d::PrefixStore>(
          fmt::format("/worker/attempt_{}", world.agent_attempt), store);
    }
    join_run(*store, world, place);
    return store;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_no_store(world, options.isServer, place, error.what());
  }
}

}  // namespace shardloom::distributed
