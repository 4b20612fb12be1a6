// The buffer of saves in the background.
#include "shardloom/checkpoint/staging_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

namespace shardloom::checkpoint {
namespace {

constexpr int64_t kBytes = 200 << 20;  // several slices of its thread

TEST(StagingBuffer, HoldsWhatWasAskedForAndStaysWhereItIs) {
  StagingBuffer buffer;
  EXPECT_EQ(buffer.bytes(), 0);
  EXPECT_EQ(buffer.get(), nullptr);
  buffer.prepare(1000);
  char* first = buffer.get();
  std::memset(first, 'x', 1000);
  buffer.prepare(10);
  EXPECT_EQ(buffer.bytes(), 1000);
  EXPECT_EQ(buffer.get(), first);
  EXPECT_EQ(first[999], 'x');
  buffer.prepare(kBytes);
  char* second = buffer.get();
  std::memset(second, 'y', kBytes);
  EXPECT_EQ(second[kBytes - 1], 'y');
}

// The owner may go, or ask for more, while pages are still being made.
TEST(StagingBuffer, CanBeLeftAtAnyTime) {
  for (int i = 0; i < 3; ++i) {
    std::optional<StagingBuffer> buffer(std::in_place);
    buffer->prepare(kBytes);
    if (i == 1) buffer->prepare(kBytes + 1);
    if (i == 2) std::memset(buffer->get(), 'z', kBytes);
    buffer.reset();
    EXPECT_FALSE(buffer.has_value());
  }
}

}  // namespace
}  // namespace shardloom::checkpoint
