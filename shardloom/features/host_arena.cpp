#include "shardloom/features/host_arena.h"

#include <cstdlib>

namespace shardloom::features {
namespace {

constexpr int64_t kGranularity = 1 << 16;
constexpr size_t kAlignment = 64;

}  // namespace

at::Tensor HostArena::make_block(int64_t bytes) const {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte);
  if (pinned_) return at::empty({bytes}, options.pinned_memory(true));
  // Not ATen's allocator: on a CPU the arena stands for another memory and is counted apart.
  void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(bytes));
  if (data == nullptr) throw std::bad_alloc();
  return at::from_blob(
      data, {bytes}, [](void* memory) { std::free(memory); }, options);
}

at::Tensor HostArena::take(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = free_.lower_bound(bytes);
  const int64_t length = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (found != free_.end() && found->first <= 2 * length) {
    at::Tensor block = std::move(found->second);
    free_.erase(found);
    return block;
  }
  at::Tensor block = make_block(length);
  num_bytes_ += length;
  return block;
}

void HostArena::give_back(at::Tensor block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t length = block.numel();
  free_.emplace(length, std::move(block));
}

int64_t HostArena::num_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_bytes_;
}

}  // namespace shardloom::features
