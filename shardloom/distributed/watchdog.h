// Says who waits for whom when a collective takes long, before the time-out ends the run.
//
// One thread a process. Every limit / 4 it writes the last collective of each group to the store,
// if that has changed; when the oldest open collective is older than the limit, it reads what the
// other members have written, and warns once. It works over any backend, holds up neither
// collectives nor the end of the process, and goes on without the others when the store is gone.
// On nccl a collective counts as open until Pending::wait(), which only queues it on the device.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "shardloom/distributed/collective_log.h"

namespace shardloom::distributed {

// SHARDLOOM_WATCHDOG_SECONDS, else 60 s; 0 turns the watchdog off. Throws ConfigError.
std::chrono::milliseconds watchdog_limit();

class Watchdog {
 public:
  using Report = std::function<void(const std::string&)>;

  // `store` is the one of the world, `rank` counts there; `report` is called on the thread.
  Watchdog(c10::intrusive_ptr<c10d::Store> store,
           int rank,
           std::chrono::milliseconds limit,
           Report report);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Until the group is gone.
  void watch(std::weak_ptr<const CollectiveLog> log);

 private:
  class State;
  std::shared_ptr<State>
      state_;  // shared with the thread, which outlives this in a store that hangs
  std::thread thread_;
};

}  // namespace shardloom::distributed
