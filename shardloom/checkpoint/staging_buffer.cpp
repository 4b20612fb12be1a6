#include "shardloom/checkpoint/staging_buffer.h"

#include <algorithm>

#include "shardloom/checkpoint/memory_pages.h"

namespace shardloom::checkpoint {
namespace {

constexpr int64_t kSliceBytes = 64 << 20;  // between two looks at whether to stop

void make_slices(const std::stop_token& stop, char* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes && !stop.stop_requested(); at += kSliceBytes)
    make_pages(data + at, static_cast<size_t>(std::min(kSliceBytes, bytes - at)));
}

}  // namespace

void StagingBuffer::prepare(int64_t bytes) {
  if (bytes <= this->bytes()) return;
  maker_ = {};
  memory_.reset();  // first, so that both are never there
  memory_ = at::empty({bytes}, at::kByte);
  maker_ = std::jthread(make_slices, static_cast<char*>(memory_.mutable_data_ptr()), bytes);
}

char* StagingBuffer::get() {
  if (maker_.joinable()) maker_.join();
  return static_cast<char*>(memory_.defined() ? memory_.mutable_data_ptr() : nullptr);
}

}  // namespace shardloom::checkpoint
