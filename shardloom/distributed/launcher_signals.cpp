#include "shardloom/distributed/launcher_signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "shardloom/base/error.h"

namespace shardloom::distributed {

SignalEvents::SignalEvents() {
  sigset_t watched;
  ::sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&watched, signal);
  fd_ = UniqueFd(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_.is_open()) throw DistributedError("cannot watch signals: {}", std::strerror(errno));
  ::pthread_sigmask(SIG_BLOCK, &watched, &old_mask_);
  struct sigaction fresh {};
  fresh.sa_handler = SIG_DFL;
  for (size_t i = 0; i < kMadeDefault.size(); ++i)
    ::sigaction(kMadeDefault[i], &fresh, &old_actions_[i]);
}

SignalEvents::~SignalEvents() {
  while (next()) {
  }
  for (size_t i = 0; i < kMadeDefault.size(); ++i)
    ::sigaction(kMadeDefault[i], &old_actions_[i], nullptr);
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

std::optional<int> SignalEvents::next() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

}  // namespace shardloom::distributed
