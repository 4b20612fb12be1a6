// Runs collectives over a shared-memory group, one after the other, on the thread of the caller.
//
// A collective is a number of rounds, at least one. In a round each rank fills its slot (a part of
// at most kShmChunkBytes), posts it, reads the slots of the others and says that it has. A slot is
// filled again only when all others have read it, so that tensors of any size go through a fixed
// ring. The first round of a collective carries its descriptor; sizes and types are compared before
// any output is written.
#pragma once

#include <vector>

#include "shardloom/distributed/shm_backend_group.h"
#include "shardloom/distributed/shm_backend_operation.h"

namespace shardloom::distributed {

class ShmRunner {
 public:
  explicit ShmRunner(ShmGroup& group) : group_(group) {}

  // Throws DistributedError; the group has then failed for all ranks.
  void run(const ShmOperation& operation);

 private:
  void gather();
  void all_to_all();
  void reduce_scatter();
  void reduce_lanes(int64_t offset, int64_t length);
  void all_reduce();

  std::byte* begin_round();
  void post_round();
  // The payload that `peer` posted in this round.
  std::byte* posted_by(int peer);
  void end_round();
  void compare_requests();

  // A slot divided among the other ranks: the part from one rank to another.
  int64_t lane_bytes() const;
  int64_t lane_offset(int from, int to) const;
  void stage_lanes(int64_t offset);

  ShmGroup& group_;
  const ShmOperation* operation_ = nullptr;
  ShmContext context_{};
  std::vector<int> peers_;  // the other ranks, from the next one on
  uint32_t round_ = 0;      // counts over all collectives
  bool compared_ = false;
  int64_t largest_part_ = 0;
};

}  // namespace shardloom::distributed
