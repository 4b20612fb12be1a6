#include "shardloom/base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "shardloom/base/log.h"

namespace shardloom {
namespace {

volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t ends_at_once = 0;
volatile std::sig_atomic_t answers_interrupt = 1;
volatile std::sig_atomic_t answers_terminate = 1;

std::atomic<int64_t> requested_at{0};  // milliseconds
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_signal(int signal) {
  if (ends_at_once != 0) ::_exit(130);
  if (requested != 0) {
    if (milliseconds() - requested_at.load() >= kSameRequest.count()) ::_exit(130);
    return;
  }
  requested_at.store(milliseconds());
  requested = 1;
  if ((signal == SIGINT ? answers_interrupt : answers_terminate) == 0) return;
  constexpr char kText[] = "\nstopping after this step; press again to stop at once\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kText, std::strlen(kText));
}

}  // namespace

void install_interrupt_handlers(OnInterrupt first) {
  ends_at_once = first == OnInterrupt::kEnd ? 1 : 0;
  answers_interrupt = log::rank() == 0 ? 1 : 0;
  answers_terminate = log::world_size() == 1 ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  if (!is_ignored(SIGHUP)) ::sigaction(SIGHUP, &action, nullptr);
  // A file-size limit must show as a failed write with its cause, not as a killed process; and
  // Ctrl-C ends the `tee` that reads the console before the last checkpoint is written.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupt_requested() { return requested != 0; }

bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace shardloom
