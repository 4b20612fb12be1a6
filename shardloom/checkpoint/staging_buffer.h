// The memory into which a save in the background copies what it writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <thread>

namespace shardloom::checkpoint {

// One owner. The first write to fresh memory is many times slower than a copy, and a save holds up
// training for its copy: so the pages can be made beforehand, by a thread.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  int64_t bytes() const { return memory_.defined() ? memory_.numel() : 0; }

  // Begins to make room for this many bytes; what is there is lost. Nothing when there is room.
  void prepare(int64_t bytes);
  // The memory, once it is there; null when none was asked for.
  char* get();

 private:
  at::Tensor memory_;   // of bytes
  std::jthread maker_;  // last: joined before the memory goes away
};

}  // namespace shardloom::checkpoint
