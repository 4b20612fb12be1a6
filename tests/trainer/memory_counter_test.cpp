#include "shardloom/trainer/memory_counter.h"

#include <gtest/gtest.h>

namespace shardloom::trainer {
namespace {

TEST(MemoryCounter, CountsBytesNowAndAtThePeak) {
  install_memory_counter();
  reset_peak_memory();
  const int64_t before = cpu_memory_use().allocated;
  {
    const at::Tensor a = at::empty({1000}, at::kFloat);
    EXPECT_EQ(cpu_memory_use().allocated - before, 4000);
    const at::Tensor view = a.narrow(0, 10, 20);
    EXPECT_EQ(cpu_memory_use().allocated - before, 4000);
    { const at::Tensor b = at::empty({500}, at::kDouble); }
    const at::Tensor none = at::empty({0}, at::kFloat);
  }
  EXPECT_EQ(cpu_memory_use().allocated, before);
  EXPECT_EQ(cpu_memory_use().max_allocated - before, 8000);
  reset_peak_memory();
  EXPECT_EQ(cpu_memory_use().max_allocated, before);
}

TEST(MemoryCounter, BlocksStayAligned) {
  install_memory_counter();
  for (const int64_t size : {1, 3, 1000}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(at::empty({size}, at::kByte).const_data_ptr()) % 64, 0u);
  }
}

}  // namespace
}  // namespace shardloom::trainer
