// SIGINT, SIGTERM, SIGHUP and SIGCHLD as readable events while this lives; what was set before
// comes back at the end.
#pragma once

#include <signal.h>

#include <array>
#include <chrono>
#include <optional>

#include "shardloom/distributed/launcher_fd.h"

namespace shardloom::distributed {

class SignalEvents {
 public:
  SignalEvents();
  ~SignalEvents();
  SignalEvents(const SignalEvents&) = delete;
  SignalEvents& operator=(const SignalEvents&) = delete;

  int fd() const { return fd_.get(); }  // readable when a signal waits
  // The next SIGINT, SIGTERM or SIGHUP that has come, if any. What follows one within
  // kSameRequest is passed over.
  std::optional<int> next();

 private:
  // Shells start background jobs with SIGINT ignored; SIGHUP stays as it is, for nohup. The console
  // may be a pipe to a program that Ctrl-C ends first (SIGPIPE, ignored).
  static constexpr std::array<int, 4> kChanged = {SIGINT, SIGTERM, SIGCHLD, SIGPIPE};

  sigset_t old_mask_{};
  std::array<struct sigaction, kChanged.size()> old_actions_{};
  UniqueFd fd_;
  std::optional<std::chrono::steady_clock::time_point> last_request_;
};

}  // namespace shardloom::distributed
