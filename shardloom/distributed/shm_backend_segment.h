// The memory that the ranks of a shared-memory group have in common: one failure record, a few
// counters a rank, and a ring of kShmSlots staging slots a rank.
//
// It is an anonymous file (memfd): it has no name in /dev/shm or anywhere else, does not count
// against the size of /dev/shm, and the kernel frees it with the last process that has it open or
// mapped. So nothing can be left behind, wherever a rank dies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shardloom::distributed {

inline constexpr uint32_t kShmSlots = 2;
inline constexpr size_t kShmChunkBytes = size_t{512} << 10;  // payload of a slot
inline constexpr size_t kShmFailureBytes = 1024;

// A number that only grows (modulo 2^32), with a count of those who sleep on it.
struct alignas(64) ShmCounter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> waiters;
};

struct ShmRankState {
  ShmCounter joined;                          // 1 once the rank has mapped the segment
  ShmCounter posted;                          // rounds whose slot the rank has filled
  ShmCounter consumed;                        // rounds that the rank has read from all others
  alignas(64) std::atomic<uint64_t> entered;  // sequence number of the collective it is in
  std::atomic<uint32_t> left;                 // 1 once the rank has closed its group
};

enum class ShmFailure : uint32_t { kNone, kWriting, kKnown };

// The first failure in the group, for the ranks that did not see it themselves.
struct alignas(64) ShmGroupState {
  uint64_t magic;
  std::atomic<ShmFailure> failure;
  int32_t failed_rank;
  char text[kShmFailureBytes];
};

struct ShmSlot {
  std::byte* descriptor;  // what the rank wants to do (shm_backend_operation.h)
  std::byte* payload;     // kShmChunkBytes
};

class ShmSegment {
 public:
  // Both throw std::system_error; open() also when the file is not a segment for `size` ranks.
  static ShmSegment create(int size);
  static ShmSegment open(const std::string& path, int size);
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  // Where other processes of this host open it, until close_file().
  std::string path() const;
  void close_file();

  ShmGroupState& group() const { return *reinterpret_cast<ShmGroupState*>(base_); }
  ShmRankState& rank(int rank) const;
  // The slot of `rank` for a round; rounds take the slots in turn.
  ShmSlot slot(int rank, uint32_t round) const;

 private:
  ShmSegment(int file, int size);

  int file_;
  int size_;
  size_t bytes_;
  std::byte* base_ = nullptr;
};

}  // namespace shardloom::distributed
