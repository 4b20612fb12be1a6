#include "shardloom/trainer/memory_counter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <mutex>

namespace shardloom::trainer {
namespace {

std::atomic<int64_t> allocated{0};
std::atomic<int64_t> max_allocated{0};

void count(int64_t bytes) {
  const int64_t now = allocated.fetch_add(bytes) + bytes;
  int64_t peak = max_allocated.load();
  while (now > peak && !max_allocated.compare_exchange_weak(peak, now)) {
  }
}

// The size stands in front of the data; 64 bytes keep the data aligned as alloc_cpu aligns it.
constexpr size_t kHeader = 64;

void release(void* data) {
  if (data == nullptr) return;
  auto* block = static_cast<char*>(data) - kHeader;
  count(-*reinterpret_cast<int64_t*>(block));
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    auto* block = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    count(static_cast<int64_t>(bytes));
    return {block + kHeader, block + kHeader, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void install_memory_counter() {
  static CountingAllocator counter;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&counter, /*priority=*/1); });
}

MemoryUse cpu_memory_use() { return {allocated.load(), max_allocated.load()}; }

void reset_peak_memory() { max_allocated.store(allocated.load()); }

}  // namespace shardloom::trainer
