// What the ranks print, on its way to the console: whole lines, with the rank before them, and the
// last error message of each rank kept back until it is known which one was the cause.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/distributed/launcher_fd.h"

namespace shardloom::distributed {

// Standard output and standard error of the launcher; `target` is STDOUT_FILENO or STDERR_FILENO.
class Console {
 public:
  Console();

  // A line with its newline. A line that is open there is ended before, a progress bar erased.
  void write_line(int target, std::string_view line);
  // Output of rank 0 as it comes, which may stop within a line.
  void pass(int target, std::string_view text);

 private:
  struct OpenLine {
    bool is_open = false;
    bool is_bar = false;
  };
  void end_open_line(int target);

  bool one_file_;  // both go to the same terminal, file or pipe
  std::array<OpenLine, 3> open_{};
};

// The two streams of one rank.
class RankOutput {
 public:
  using Clock = std::chrono::steady_clock;

  // `out`, `err`: ends that do not block. Rank 0 gets no prefix; with `live` (a terminal),
  // unfinished lines are shown as they come.
  RankOutput(int rank, UniqueFd out, UniqueFd err, bool live, Console& console);

  void add_poll_fds(std::vector<pollfd>& fds) const;
  void read_available();
  // The rank has ended: reads the rest, shows unfinished lines, closes.
  void finish();

  // An "error: " line, and what follows it, is kept back; see error().
  bool keeps_error_since(Clock::time_point time) const { return !kept_.empty() && since_ <= time; }
  void show_error();
  void drop_error() { kept_.clear(); }
  // The last error message without "error: ", all lines; empty when there was none.
  const std::string& error() const { return error_; }

 private:
  struct Stream {
    UniqueFd fd;
    int target;
    std::string unfinished;
  };
  void drain(Stream& stream);
  void take_lines(Stream& stream);
  void take_line(const Stream& stream, std::string_view line);
  void show(int target, std::string_view line);
  bool may_become_error(const Stream& stream, std::string_view line) const;

  std::string prefix_;      // "" for rank 0
  std::string own_prefix_;  // the log puts this before messages when there are several ranks
  bool live_;
  Console& console_;
  std::array<Stream, 2> streams_;
  std::vector<std::string> kept_;
  std::string error_;
  Clock::time_point since_;
};

}  // namespace shardloom::distributed
