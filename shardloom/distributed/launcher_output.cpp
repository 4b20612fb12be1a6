#include "shardloom/distributed/launcher_output.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace shardloom::distributed {
namespace {

constexpr std::string_view kError = "error: ";
constexpr std::string_view kEraseLine = "\r\033[K";
constexpr size_t kMaxLine = 1 << 16;  // a longer line is shown in pieces
constexpr int kMaxReads = 16;

bool is_one_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // the console is shared with somebody who made it so
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;  // the console is gone, the run goes on
    }
  }
}

// What is seen of a line on which a progress bar was drawn and erased before.
std::string_view visible(std::string_view line) {
  const size_t start = line.rfind(kEraseLine);
  return start == std::string_view::npos ? line : line.substr(start + kEraseLine.size());
}

std::string_view without_prefix(std::string_view line, std::string_view prefix) {
  if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
  return line;
}

}  // namespace

Console::Console() : one_file_(is_one_file(STDOUT_FILENO, STDERR_FILENO)) {}

void Console::end_open_line(int target) {
  OpenLine& line = open_[target];
  if (line.is_open) write_all(target, line.is_bar ? kEraseLine : "\n");
  line = {};
}

void Console::write_line(int target, std::string_view line) {
  for (const int other : {STDOUT_FILENO, STDERR_FILENO}) {
    if (other == target || one_file_) end_open_line(other);
  }
  write_all(target, line);
}

void Console::pass(int target, std::string_view text) {
  if (one_file_) end_open_line(target == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO);
  write_all(target, text);
  OpenLine& line = open_[target];
  const std::string_view tail = text.substr(text.rfind('\n') + 1);  // npos + 1 == 0
  const bool goes_on = tail.size() == text.size() && line.is_open;
  line.is_bar = visible(tail).size() != tail.size() || (goes_on && line.is_bar);
  line.is_open = !tail.empty();
}

RankOutput::RankOutput(int rank, UniqueFd out, UniqueFd err, bool live, Console& console)
    : prefix_(rank == 0 ? "" : fmt::format("[rank {}] ", rank)),
      own_prefix_(fmt::format("[rank {}] ", rank)),
      live_(live),
      console_(console),
      streams_{Stream{std::move(out), STDOUT_FILENO, {}},
               Stream{std::move(err), STDERR_FILENO, {}}} {}

void RankOutput::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const Stream& stream : streams_) {
    if (stream.fd.is_open()) fds.push_back({stream.fd.get(), POLLIN, 0});
  }
}

void RankOutput::read_available() {
  for (Stream& stream : streams_) drain(stream);
}

void RankOutput::finish() {
  read_available();
  for (Stream& stream : streams_) {
    stream.fd.reset();
    if (!stream.unfinished.empty()) take_line(stream, std::exchange(stream.unfinished, {}));
  }
}

void RankOutput::show_error() {
  for (const std::string& line : kept_) show(STDERR_FILENO, line);
  kept_.clear();
}

void RankOutput::drain(Stream& stream) {
  std::array<char, kMaxLine> buffer;
  // A rank that prints without end must not keep the launcher from its other duties.
  for (int rounds = 0; rounds < kMaxReads && stream.fd.is_open(); ++rounds) {
    const ssize_t n = ::read(stream.fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {  // the end; a pseudo-terminal ends with EIO
      stream.fd.reset();
      break;
    }
    stream.unfinished.append(buffer.data(), static_cast<size_t>(n));
    take_lines(stream);
  }
}

void RankOutput::take_lines(Stream& stream) {
  std::string_view rest = stream.unfinished;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
    take_line(stream, rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
  }
  const bool keeps = stream.target == STDERR_FILENO && !kept_.empty();
  const bool shows_now = live_ && !keeps && !may_become_error(stream, rest);
  if (!rest.empty() && (shows_now || rest.size() > kMaxLine)) {
    take_line(stream, rest);
    rest = {};
  }
  stream.unfinished = std::string(rest);
}

bool RankOutput::may_become_error(const Stream& stream, std::string_view line) const {
  if (stream.target != STDERR_FILENO) return false;
  const std::string_view text = visible(line);
  const auto agrees = [&](std::string_view start) {
    return text.starts_with(start) || start.starts_with(text);
  };
  return agrees(kError) || agrees(own_prefix_);
}

void RankOutput::take_line(const Stream& stream, std::string_view line) {
  if (stream.target == STDERR_FILENO) {
    const std::string_view text = without_prefix(visible(line), own_prefix_);
    if (text.starts_with(kError)) {
      show_error();
      error_ = text.substr(kError.size());
      since_ = Clock::now();
      kept_.emplace_back(line);
      return;
    }
    if (!kept_.empty()) {
      error_ += text;
      kept_.emplace_back(line);
      return;
    }
  }
  show(stream.target, line);
}

void RankOutput::show(int target, std::string_view line) {
  if (prefix_.empty()) return console_.pass(target, line);
  std::string text = prefix_;
  text += without_prefix(line, own_prefix_);
  if (!text.ends_with('\n')) text += '\n';
  console_.write_line(target, text);
}

}  // namespace shardloom::distributed
