#include "shardloom/distributed/shm_backend_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "shardloom/distributed/shm_backend_operation.h"

namespace shardloom::distributed {
namespace {

constexpr uint64_t kMagic = 0x6d6f6f6c64726873;
constexpr size_t kPage = 4096;

size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

size_t states_bytes(int size) {
  return round_up(sizeof(ShmGroupState) + static_cast<size_t>(size) * sizeof(ShmRankState));
}

size_t descriptor_bytes(int size) { return round_up(ShmDescriptor::bytes(size)); }

size_t slot_bytes(int size) { return descriptor_bytes(size) + kShmChunkBytes; }

size_t segment_bytes(int size) {
  return states_bytes(size) + static_cast<size_t>(size) * kShmSlots * slot_bytes(size);
}

[[noreturn]] void throw_errno(int code, const std::string& what) {
  throw std::system_error(code, std::generic_category(), what);
}

}  // namespace

ShmSegment::ShmSegment(int file, int size)
    : file_(file), size_(size), bytes_(segment_bytes(size)) {}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      size_(other.size_),
      bytes_(other.bytes_),
      base_(std::exchange(other.base_, nullptr)) {}

ShmSegment::~ShmSegment() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
  close_file();
}

namespace {

std::byte* map(int file, size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) throw_errno(errno, fmt::format("cannot map {} shared bytes", bytes));
  return static_cast<std::byte*>(base);
}

}  // namespace

ShmSegment ShmSegment::create(int size) {
  ShmSegment segment(::memfd_create("shardloom", MFD_CLOEXEC), size);
  if (segment.file_ < 0) throw_errno(errno, "memfd_create");
  // Reserves the pages now, so that a lack of memory is an error here and no SIGBUS later.
  const int code = ::posix_fallocate(segment.file_, 0, static_cast<off_t>(segment.bytes_));
  if (code != 0) throw_errno(code, fmt::format("cannot get {} shared bytes", segment.bytes_));
  segment.base_ = map(segment.file_, segment.bytes_);
  segment.group().magic = kMagic;
  return segment;
}

ShmSegment ShmSegment::open(const std::string& path, int size) {
  ShmSegment segment(::open(path.c_str(), O_RDWR | O_CLOEXEC), size);
  if (segment.file_ < 0) throw_errno(errno, path);
  struct stat status {};
  if (::fstat(segment.file_, &status) != 0) throw_errno(errno, path);
  if (static_cast<size_t>(status.st_size) != segment.bytes_) {
    throw_errno(EINVAL, fmt::format("{} has {} bytes where {} ranks need {}", path, status.st_size,
                                    size, segment.bytes_));
  }
  segment.base_ = map(segment.file_, segment.bytes_);
  if (segment.group().magic != kMagic) throw_errno(EINVAL, path + " is not a group's memory");
  segment.close_file();
  return segment;
}

std::string ShmSegment::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_); }

void ShmSegment::close_file() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

ShmRankState& ShmSegment::rank(int rank) const {
  return reinterpret_cast<ShmRankState*>(base_ + sizeof(ShmGroupState))[rank];
}

ShmSlot ShmSegment::slot(int rank, uint32_t round) const {
  const size_t index = static_cast<size_t>(rank) * kShmSlots + round % kShmSlots;
  std::byte* slot = base_ + states_bytes(size_) + index * slot_bytes(size_);
  return {slot, slot + descriptor_bytes(size_)};
}

}  // namespace shardloom::distributed
