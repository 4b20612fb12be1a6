#include "shardloom/distributed/launcher_signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/base/interrupt.h"

namespace shardloom::distributed {
SignalEvents::SignalEvents() {
  sigset_t watched;
  ::sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&watched, signal);
  // Once blocked, a signal waits even where it is ignored, as by nohup.
  if (!is_ignored(SIGHUP)) ::sigaddset(&watched, SIGHUP);
  fd_ = UniqueFd(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_.is_open()) throw DistributedError("cannot watch signals: {}", std::strerror(errno));
  ::pthread_sigmask(SIG_BLOCK, &watched, &old_mask_);
  for (size_t i = 0; i < kChanged.size(); ++i) {
    struct sigaction fresh {};
    fresh.sa_handler = kChanged[i] == SIGPIPE ? SIG_IGN : SIG_DFL;
    ::sigaction(kChanged[i], &fresh, &old_actions_[i]);
  }
}

SignalEvents::~SignalEvents() {
  while (next()) {
  }
  for (size_t i = 0; i < kChanged.size(); ++i) ::sigaction(kChanged[i], &old_actions_[i], nullptr);
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

std::optional<int> SignalEvents::next() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    const auto now = std::chrono::steady_clock::now();
    if (last_request_ && now - *last_request_ < kSameRequest) continue;
    last_request_ = now;
    return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

}  // namespace shardloom::distributed
