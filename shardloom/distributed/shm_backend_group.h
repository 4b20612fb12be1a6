// Membership of one rank in a shared-memory group: how it joins, waits for others, and learns that
// one of them has died, left or failed.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "shardloom/distributed/shm_backend_segment.h"

namespace shardloom::distributed {

// What a rank is doing while it waits; the place in error texts.
struct ShmContext {
  const char* operation;
  uint64_t sequence;  // from 1; 0 while the group is set up
  std::chrono::milliseconds timeout;
  std::chrono::steady_clock::time_point deadline;
};

ShmContext make_context(const char* operation,
                        uint64_t sequence,
                        std::chrono::milliseconds timeout);

// Notices the end of processes of this host, zombies included.
class PeerWatch {
 public:
  PeerWatch() = default;
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();

  void add(int64_t pid);
  bool has_ended(int rank) const;
  int64_t pid(int rank) const { return pids_[rank]; }
  int count() const { return static_cast<int>(pids_.size()); }

 private:
  std::vector<int64_t> pids_;
  std::vector<int> files_;  // pidfd, or -1 when the process had ended before
};

class ShmGroup {
 public:
  // Collective. Each rank writes its pid to the store; rank 0 creates the segment and writes where
  // it can be opened (/proc/<pid>/fd/<n>), and closes that file once all ranks have mapped it.
  // Throws DistributedError naming the ranks that have not come, or have died.
  ShmGroup(c10d::Store& store,
           int rank,
           std::vector<int> world_ranks,
           std::string name,
           std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  // The members as texts name them.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank() const { return world_ranks_[rank_]; }
  ShmRankState& state(int rank) const { return segment_.rank(rank); }
  ShmSlot slot(int rank, uint32_t round) const { return segment_.slot(rank, round); }

  // Blocks until the counter, which `peer` advances, has reached `target`. Throws DistributedError
  // when the peer ends or leaves, the group fails, or the time is up; then the group has failed.
  void await(int peer, ShmCounter& counter, uint32_t target, const ShmContext& context);
  static void advance(ShmCounter& counter);

  // Ends the group for all ranks, unless it has failed already: now or soon each waiting rank
  // throws with this text.
  void fail(const std::string& text);
  // Tells the others that this rank will not come to any further collective.
  void leave();
  // Throws if the group has failed.
  void check(const ShmContext& context) const;

  // "rank 1, group dp, all_gather #7: "
  std::string place(const ShmContext& context) const;
  // "rank 1 (at #6), rank 3 (not started)": who has not begun the collective.
  std::string missing(uint64_t sequence) const;

 private:
  ShmSegment join(c10d::Store& store, const ShmContext& context);
  std::string read_key(c10d::Store& store, int peer, const char* key, const ShmContext& context);
  void await_all_joined(const ShmContext& context);
  bool is_gone(int peer) const;
  std::string peer_text(int peer) const;
  void check_ended(const ShmContext& context) const;
  ShmSegment open_segment(const std::string& path, const ShmContext& context) const;
  [[noreturn]] void fail_and_throw(const std::string& text);

  int rank_;
  std::vector<int> world_ranks_;
  std::string name_;
  PeerWatch watch_;
  ShmSegment segment_;
};

}  // namespace shardloom::distributed
