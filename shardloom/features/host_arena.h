// Host memory that is taken and given back every step: pinned where a device copies from it, plain
// memory otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>

namespace shardloom::features {

class HostArena {
 public:
  explicit HostArena(bool pinned) : pinned_(pinned) {}

  // A 1-D uint8 block of at least `bytes`; one that was given back before if it is not more than
  // twice as long.
  at::Tensor take(int64_t bytes);
  void give_back(at::Tensor block);
  // Of all blocks, free or taken.
  int64_t num_bytes() const;

 private:
  at::Tensor make_block(int64_t bytes) const;

  bool pinned_;
  mutable std::mutex mutex_;
  std::multimap<int64_t, at::Tensor> free_;  // by length
  int64_t num_bytes_ = 0;
};

}  // namespace shardloom::features
