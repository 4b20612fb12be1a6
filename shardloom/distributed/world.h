// All processes of a run, and the groups among them.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/distributed/process_group.h"
#include "shardloom/distributed/watchdog.h"

namespace shardloom::distributed {

class World {
 public:
  // One process by itself: a world of size 1, without a port.
  static std::shared_ptr<World> alone(c10::Device device = c10::Device(c10::kCPU));
  // Collective. `device` is the one whose tensors will go through the groups, for kAuto. Throws
  // DistributedError or ConfigError as connect_store() and make_backend() do.
  static std::shared_ptr<World> connect(const WorldOptions& options,
                                        BackendKind backend = BackendKind::kAuto,
                                        std::chrono::milliseconds timeout = default_timeout(),
                                        c10::Device device = c10::Device(c10::kCPU));
  // Rank `rank` of `size` without any communication (fake_backend.h).
  static std::shared_ptr<World> fake(int rank, int size);
  // Over a store that exists already; for tests and embedding programs.
  static std::shared_ptr<World> over(c10::intrusive_ptr<c10d::Store> store,
                                     int rank,
                                     int size,
                                     BackendKind backend,
                                     std::chrono::milliseconds timeout = default_timeout(),
                                     c10::Device device = c10::Device(c10::kCPU));
  ~World();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The group of all ranks.
  const std::shared_ptr<Group>& group() const { return group_; }
  // Collective over `ranks`, which hold this one; each group of a world needs a name of its own
  // (it is completed with the ranks, so disjoint groups of one axis may share it).
  std::shared_ptr<Group> make_group(const std::string& name, std::vector<int> ranks);

 private:
  World(c10::intrusive_ptr<c10d::Store> store,
        int rank,
        int size,
        BackendKind backend,
        std::chrono::milliseconds timeout,
        c10::Device device);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  BackendKind backend_;
  std::chrono::milliseconds timeout_;
  c10::Device device_;
  std::unique_ptr<Watchdog> watchdog_;  // null in worlds of one rank, and of the fake backend
  std::set<std::string> keys_;          // of the groups made so far
  std::shared_ptr<Group> group_;
};

}  // namespace shardloom::distributed
