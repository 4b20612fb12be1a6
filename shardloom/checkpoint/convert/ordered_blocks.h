// Blocks of bytes that several threads prepare and one takes in order: what keeps a conversion
// streaming while its reads and transpositions use every core.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace shardloom::checkpoint {

// Bytes that are not set to zero first.
class Buffer {
 public:
  // Room for this many bytes, of any content; what was there before is lost.
  char* reset(size_t bytes);
  std::string_view view() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

class OrderedBlocks {
 public:
  // Fills the buffer with block `index`; called from the threads, each index once.
  using Fill = std::function<void(size_t index, Buffer& buffer)>;

  // At most 2 * threads + 1 buffers exist at a time.
  OrderedBlocks(size_t count, int threads, Fill fill);
  ~OrderedBlocks();
  OrderedBlocks(const OrderedBlocks&) = delete;
  OrderedBlocks& operator=(const OrderedBlocks&) = delete;

  // The next block, valid until the next call. Throws what its fill threw.
  std::string_view next();

 private:
  struct Slot {
    Buffer buffer;
    bool ready = false;
    std::exception_ptr error;
  };

  void work();
  Slot& slot_of(size_t index) { return slots_[index % slots_.size()]; }

  const size_t count_;
  const Fill fill_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable freed_;
  size_t next_fill_ = 0;  // first index that no thread has taken
  size_t next_take_ = 0;  // first index that next() has not given
  size_t in_use_ = 0;     // 1 while the caller holds block next_take_ - 1
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shardloom::checkpoint
