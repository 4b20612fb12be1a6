// Blocks come in order, with few buffers, and the first failure in order reaches the caller.
#include "shardloom/checkpoint/convert/ordered_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include "shardloom/base/error.h"

namespace shardloom::checkpoint {
namespace {

void put(Buffer& buffer, const std::string& text) {
  std::memcpy(buffer.reset(text.size()), text.data(), text.size());
}

TEST(OrderedBlocks, ComeInOrderWhateverThreadIsFaster) {
  for (const int threads : {1, 2, 5}) {
    OrderedBlocks blocks(200, threads, [](size_t i, Buffer& buffer) {
      std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 101));
      put(buffer, std::to_string(i));
    });
    for (size_t i = 0; i < 200; ++i) ASSERT_EQ(blocks.next(), std::to_string(i));
    EXPECT_THROW(blocks.next(), InternalError);
  }
}

TEST(OrderedBlocks, PrepareNoMoreThanTheBuffersHold) {
  constexpr int kThreads = 3;
  std::atomic<size_t> filled = 0;
  OrderedBlocks blocks(1000, kThreads, [&](size_t i, Buffer& buffer) {
    ++filled;
    put(buffer, std::to_string(i));
  });
  for (size_t taken = 1; taken <= 50; ++taken) {
    const std::string_view block = blocks.next();
    const std::string before(block);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(block, before) << "a block was overwritten while it was in use";
    // The one in use and those that are ready or in the making.
    ASSERT_LE(filled, taken - 1 + 2 * kThreads + 1);
  }
}

TEST(OrderedBlocks, FailureComesAtItsPlace) {
  OrderedBlocks blocks(10, 2, [](size_t i, Buffer& buffer) {
    if (i == 3) throw std::runtime_error("block 3");
    put(buffer, std::to_string(i));
  });
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(blocks.next(), std::to_string(i));
  try {
    blocks.next();
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "block 3");
  }
}

TEST(OrderedBlocks, CanBeLeftAtAnyTime) {
  for (size_t taken = 0; taken < 6; ++taken) {
    OrderedBlocks blocks(100, 4, [](size_t i, Buffer& buffer) { put(buffer, std::to_string(i)); });
    for (size_t i = 0; i < taken; ++i) blocks.next();
  }
  const OrderedBlocks nothing(0, 2, [](size_t, Buffer&) {});
}

}  // namespace
}  // namespace shardloom::checkpoint
