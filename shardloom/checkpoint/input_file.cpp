#include "shardloom/checkpoint/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/memory_pages.h"

namespace shardloom::checkpoint {
namespace {

[[noreturn]] void fail(const char* action, const std::filesystem::path& path) {
  throw CheckpointError("cannot {} {}: {}", action, path.string(),
                        std::generic_category().message(errno));
}

}  // namespace

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail("open", path_);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read_at(uint64_t offset, char* target, size_t size) const {
  make_pages(target, size);
  while (size > 0) {
    const ssize_t n = ::pread(fd_, target, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path_);
    if (n == 0) throw CheckpointError("{} became shorter while it was read", path_.string());
    target += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
}

}  // namespace shardloom::checkpoint
