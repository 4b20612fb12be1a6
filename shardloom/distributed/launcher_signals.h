// SIGINT, SIGTERM, SIGHUP and SIGCHLD as readable events while this lives; what was set before
// comes back at the end.
#pragma once

#include <signal.h>

#include <array>
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
  // The next SIGINT, SIGTERM or SIGHUP that has come, if any.
  std::optional<int> next();

 private:
  // Shells start background jobs with SIGINT ignored, and an ignored signal never waits; SIGHUP
  // stays as it is, for nohup.
  static constexpr std::array<int, 3> kMadeDefault = {SIGINT, SIGTERM, SIGCHLD};

  sigset_t old_mask_{};
  std::array<struct sigaction, kMadeDefault.size()> old_actions_{};
  UniqueFd fd_;
};

}  // namespace shardloom::distributed
