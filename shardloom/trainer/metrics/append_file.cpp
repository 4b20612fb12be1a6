#include "shardloom/trainer/metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"

namespace shardloom::trainer {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;  // open() gives the better message
  std::filesystem::create_directories(path_.parent_path(), ignored);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw ConfigError("metrics_dir: cannot write {}: {}", path_.string(),
                      std::generic_category().message(errno));
  }
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AppendFile::append(std::string_view record) {
  while (fd_ >= 0 && !record.empty()) {
    const ssize_t n = ::write(fd_, record.data(), record.size());
    if (n >= 0) {
      record.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      log::warn("cannot write {}: {}; its metrics end here, the training goes on", path_.string(),
                std::generic_category().message(errno));
      ::close(std::exchange(fd_, -1));
    }
  }
}

}  // namespace shardloom::trainer
