// Activation offload: the inputs of a list of blocks wait for backward in host memory.
//
// Of what a block's forward saves, the tensors over the memory of its first input move (all views
// of it with one copy); with recomputation inside, that is all a block keeps. Everything else
// stays: parameters and views of them, integers, freed memory, inputs that are parts of larger
// tensors. The device's memory goes back as soon as nobody else holds the input. Backward fetches a
// block's input while the block after it is at work. The last block's input stays on the device.
#pragma once

#include <memory>
#include <vector>

#include "shardloom/nn/module.h"

namespace shardloom::features {

struct OffloadCounters {
  int64_t bytes_to_host = 0;
  int64_t bytes_to_device = 0;
  int64_t host_bytes = 0;      // of the arena; grows until it has seen the largest step
  int64_t late_fetches = 0;    // the device had to wait for the copy
  double seconds_waiting = 0;  // of the host in copies; on a device it never waits
};

class OffloadTraffic;

class ActivationOffload {
 public:
  // Adds a wrapper to each of `blocks`, which stand in the order in which forward runs them. To be
  // added after recompute() and before fully_shard. Throws ConfigError for a module that has no
  // forward of its own.
  explicit ActivationOffload(const std::vector<nn::Module*>& blocks);

  // Since the start; of all devices together.
  OffloadCounters counters() const;

 private:
  std::shared_ptr<OffloadTraffic> traffic_;
};

}  // namespace shardloom::features
