#include "shardloom/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

namespace shardloom {
namespace {

[[noreturn]] void throw_errno(const std::filesystem::path& path, const char* action) {
  throw std::system_error(errno, std::generic_category(),
                          fmt::format("cannot {} {}", action, path.string()));
}

class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, int flags, int mode = 0644)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

struct stat stat_of(const FileDescriptor& fd, const std::filesystem::path& path) {
  if (fd.get() < 0) throw_errno(path, "open");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw_errno(path, "stat");
  return info;
}

std::string read_to_end(const FileDescriptor& fd, const std::filesystem::path& path) {
  std::string content;
  char piece[4096];
  while (true) {
    const ssize_t n = ::read(fd.get(), piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "read");
    if (n == 0) return content;
    content.append(piece, static_cast<size_t>(n));
  }
}

// Flushed to the disk.
void write_file(const std::filesystem::path& path, std::string_view content) {
  FileDescriptor fd(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd.get() < 0) throw_errno(path, "create");
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t n = ::write(fd.get(), content.data() + written, content.size() - written);
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_errno(path, "write");
    }
    written += static_cast<size_t>(n);
  }
  if (!flush_to_disk(fd.get())) throw_errno(path, "flush");
  if (fd.close() != 0) throw_errno(path, "close");
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const FileDescriptor fd(path, O_RDONLY);
  const struct stat info = stat_of(fd, path);
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    throw_errno(path, "read");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) throw_errno(path, "map");
  data_ = static_cast<const char*>(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::drop_pages(size_t offset, size_t length) const {
  static const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = (offset + kPage - 1) / kPage * kPage;
  const size_t last = (offset + length) / kPage * kPage;
  if (data_ != nullptr && last > first) {
    ::madvise(const_cast<char*>(data_) + first, last - first, MADV_DONTNEED);
  }
}

std::string read_file(const std::filesystem::path& path) {
  {
    const FileDescriptor fd(path, O_RDONLY);
    const struct stat info = stat_of(fd, path);
    // Files below /proc say that they are empty, and pipes cannot be mapped.
    if (!S_ISREG(info.st_mode) || info.st_size == 0) return read_to_end(fd, path);
  }
  return std::string(MappedFile(path).view());
}

bool flush_to_disk(int fd) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

void sync_to_disk(const std::filesystem::path& path) {
  const FileDescriptor fd(path, O_RDONLY);
  if (fd.get() < 0) throw_errno(path, "open");
  if (!flush_to_disk(fd.get())) throw_errno(path, "flush");
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  try {
    write_file(temporary, content);
    std::filesystem::rename(temporary, path);
  } catch (const std::exception&) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(temporary, ignored))
      std::filesystem::remove(temporary, ignored);
    throw;
  }
}

std::string describe_foreign_content(std::string_view head) {
  auto starts = [&](std::string_view prefix) { return head.substr(0, prefix.size()) == prefix; };
  if (starts("version https://git-lfs")) return "a git-lfs pointer (run `git lfs pull`)";
  if (starts("<!DOCTYPE") || starts("<!doctype") || starts("<html") || starts("<HTML"))
    return "an HTML page";
  if (starts("PK\x03\x04")) return "a zip archive (a PyTorch .bin or .pt file?)";
  if (starts("\x80\x02") || starts("\x80\x04") || starts("\x80\x05")) return "a Python pickle";
  return {};
}

}  // namespace shardloom
