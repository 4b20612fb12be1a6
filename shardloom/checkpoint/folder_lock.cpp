#include "shardloom/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "shardloom/base/error.h"

namespace shardloom::checkpoint {
namespace {

constexpr std::chrono::milliseconds kPause{50};

bool is_held_by_another(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK;
  }
  return false;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) {
    throw CheckpointError("cannot open {}: {}", folder.string(),
                          std::generic_category().message(errno));
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (is_held_by_another(fd_)) {
    if (std::chrono::steady_clock::now() >= end) {
      ::close(fd_);
      throw CheckpointError(
          "{} is in use: another run saves its checkpoints there; wait for its end, or choose "
          "another folder",
          folder.string());
    }
    std::this_thread::sleep_for(kPause);
  }
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace shardloom::checkpoint
