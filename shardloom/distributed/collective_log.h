// The collectives of one group that this process has issued and not yet waited for, as error texts
// and the watchdog (watchdog.h) see them.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace shardloom::distributed {

using Clock = std::chrono::steady_clock;

// What a collective is called: "all_gather", its number in the group (from 1) and the caller's
// label (may be empty).
struct CollectiveName {
  std::string operation;
  uint64_t sequence = 0;
  std::string label;
};

// Lives from the issue until the caller has waited or let go; linked into its group's log.
struct OpenCollective {
  const char* operation = "";
  uint64_t sequence = 0;
  std::string label;
  Clock::time_point issued;
  c10::intrusive_ptr<c10d::Work> work;
  OpenCollective* before = nullptr;
  OpenCollective* after = nullptr;
};

// "dp 1..13/4" for the group dp of ranks 1, 5, 9, 13: unique in a world, and short for the groups
// of a mesh however many ranks there are.
std::string group_key(const std::string& group, const std::vector<int>& ranks);

class CollectiveLog {
 public:
  CollectiveLog(std::string group, std::vector<int> ranks, int rank);
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;

  const std::string& group() const { return group_; }
  const std::vector<int>& ranks() const { return ranks_; }
  const std::string& key() const { return key_; }
  // This process, counted in the world.
  int world_rank() const { return ranks_[static_cast<size_t>(rank_)]; }

  // "rank 5, group dp, all_gather #3"; the rank is the one of the world.
  std::string place(const char* operation, uint64_t sequence) const;

  // `collective` stays where it is until close(). Neither allocates once labels have been as long.
  void open(OpenCollective& collective);
  void close(OpenCollective& collective);

  struct Waiting {
    CollectiveName name;
    Clock::time_point issued;
  };
  // The first collective whose work is not complete.
  std::optional<Waiting> oldest_open() const;
  // Number 0 when none has been issued.
  CollectiveName last_issued() const;

 private:
  std::string group_;
  std::vector<int> ranks_;
  std::string key_;
  int rank_;
  mutable std::mutex mutex_;  // held for a few instructions; the watchdog seldom looks
  OpenCollective* first_ = nullptr;
  OpenCollective* last_ = nullptr;
  const char* last_operation_ = "";
  uint64_t last_sequence_ = 0;
  std::string last_label_;
};

}  // namespace shardloom::distributed
