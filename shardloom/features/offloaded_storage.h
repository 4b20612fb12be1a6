// Memory of one activation that lives on the host between forward and backward.
#pragma once

#include <c10/core/Storage.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/features/activation_offload.h"
#include "shardloom/features/copy_stream.h"
#include "shardloom/features/host_arena.h"

namespace shardloom::features {

class BlockRecord;

// What all blocks of a list have in common.
class OffloadTraffic {
 public:
  explicit OffloadTraffic(size_t num_blocks) : last_calls_(num_blocks) {}
  OffloadCounters counters() const;

 private:
  friend class OffloadedStorage;
  friend class OffloadWrapper;

  // Copies of one device and the host memory that they use.
  struct Lane {
    CopyStream stream;
    HostArena arena;
    explicit Lane(c10::Device device) : stream(device), arena(!device.is_cpu()) {}
  };
  Lane& lane(c10::Device device);

  std::map<std::string, std::unique_ptr<Lane>> lanes_;  // by name of the device
  std::vector<std::weak_ptr<BlockRecord>> last_calls_;  // by block
  OffloadCounters counters_;
};

class OffloadedStorage {
 public:
  // Copies the memory to the host.
  OffloadedStorage(const c10::Storage& source, std::shared_ptr<OffloadTraffic> traffic);
  ~OffloadedStorage();
  OffloadedStorage(const OffloadedStorage&) = delete;
  OffloadedStorage& operator=(const OffloadedStorage&) = delete;

  // One more saved tensor over this memory.
  void add_user() { ++users_; }
  // Starts the copy back, unless it is there.
  void prefetch();
  // The memory on the device, for one of the users; kept here until all of them have got it.
  c10::Storage get();

 private:
  std::shared_ptr<OffloadTraffic> traffic_;
  OffloadTraffic::Lane& lane_;
  int64_t num_bytes_;
  at::Tensor host_;
  int users_ = 0;

  at::Tensor fetched_;  // uint8; undefined: on the host alone
  CopyStream::Copy to_device_;
  int served_ = 0;
};

// What one call of a block has offloaded.
class BlockRecord {
 public:
  explicit BlockRecord(std::weak_ptr<BlockRecord> previous) : previous_(std::move(previous)) {}

  void add(const std::shared_ptr<OffloadedStorage>& storage) { storages_.push_back(storage); }
  // Backward has reached this block: the one before comes next.
  void prefetch_previous();

 private:
  std::vector<std::weak_ptr<OffloadedStorage>> storages_;
  std::weak_ptr<BlockRecord> previous_;
  bool is_reached_ = false;
};

}  // namespace shardloom::features
