#include "shardloom/checkpoint/memory_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace shardloom::checkpoint {

void make_pages([[maybe_unused]] char* data, [[maybe_unused]] size_t size) {
#ifdef MADV_POPULATE_WRITE
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (address + kPage - 1) / kPage * kPage;
  const uintptr_t last = (address + size) / kPage * kPage;
  if (last > first) ::madvise(data + (first - address), last - first, MADV_POPULATE_WRITE);
#endif
}

}  // namespace shardloom::checkpoint
