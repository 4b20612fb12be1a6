#include "shardloom/checkpoint/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {
namespace {

constexpr uint64_t kWindowBytes = 16 << 20;

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, uint64_t expected_bytes)
    : path_(std::move(path)), temporary_(path_), expected_bytes_(expected_bytes) {
  temporary_ += ".tmp";
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("create");
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::fail(const char* action) const {
  const int cause = errno;
  std::string text = fmt::format("cannot {} {}: {}", action, temporary_.string(),
                                 std::generic_category().message(cause));
  text += fmt::format(" ({} written", human_bytes(bytes_written_));
  if (expected_bytes_ > 0) text += fmt::format(" of {}", human_bytes(expected_bytes_));
  if (cause == ENOSPC || cause == EDQUOT) {
    std::error_code ignored;
    const auto space = std::filesystem::space(temporary_.parent_path(), ignored);
    if (!ignored) text += fmt::format("; {} free", human_bytes(space.available));
  }
  throw CheckpointError("{})", text);
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    bytes_written_ += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
    if (bytes_written_ - bytes_sent_ >= kWindowBytes) send_to_disk();
  }
}

// A disk that begins to write only when commit() waits for it is idle until then. A hint: whether
// it is taken, and whether all went well, shows at the flush.
void OutputFile::send_to_disk() {
  ::sync_file_range(fd_, static_cast<off64_t>(bytes_sent_),
                    static_cast<off64_t>(bytes_written_ - bytes_sent_), SYNC_FILE_RANGE_WRITE);
  bytes_sent_ = bytes_written_;
}

void OutputFile::commit() {
  SHARDLOOM_CHECK(fd_ >= 0, "{} is committed twice", path_.string());
  if (!flush_to_disk(fd_)) fail("flush");
  // Network file systems report late write errors here; after close() the descriptor is gone either
  // way.
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    ::unlink(temporary_.c_str());
    errno = cause;
    fail("finish");
  }
  sync_path(path_.parent_path());
}

void sync_path(const std::filesystem::path& path) {
  try {
    sync_to_disk(path.empty() ? "." : path);
  } catch (const std::system_error& error) {
    throw CheckpointError("{}", error.what());
  }
}

}  // namespace shardloom::checkpoint
