#include "shardloom/checkpoint/convert/ordered_blocks.h"

#include <algorithm>
#include <utility>

#include "shardloom/base/error.h"

namespace shardloom::checkpoint {

char* Buffer::reset(size_t bytes) {
  if (bytes > capacity_) {
    data_.reset();
    data_ = std::make_unique_for_overwrite<char[]>(bytes);
    capacity_ = bytes;
  }
  size_ = bytes;
  return data_.get();
}

OrderedBlocks::OrderedBlocks(size_t count, int threads, Fill fill)
    : count_(count), fill_(std::move(fill)), slots_(static_cast<size_t>(2 * threads + 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

OrderedBlocks::~OrderedBlocks() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  freed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void OrderedBlocks::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    freed_.wait(lock, [&] {
      const bool has_room = next_fill_ - next_take_ + in_use_ < slots_.size();
      return stopped_ || next_fill_ == count_ || has_room;
    });
    if (stopped_ || next_fill_ == count_) return;
    const size_t index = next_fill_++;
    Slot& slot = slot_of(index);
    lock.unlock();
    try {
      fill_(index, slot.buffer);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slot.ready = true;
    filled_.notify_one();
  }
}

std::string_view OrderedBlocks::next() {
  std::unique_lock lock(mutex_);
  SHARDLOOM_CHECK(next_take_ < count_, "all {} blocks are taken", count_);
  in_use_ = 0;
  freed_.notify_one();
  Slot& slot = slot_of(next_take_);
  filled_.wait(lock, [&] { return slot.ready; });
  slot.ready = false;
  ++next_take_;
  in_use_ = 1;
  if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
  return slot.buffer.view();
}

}  // namespace shardloom::checkpoint
