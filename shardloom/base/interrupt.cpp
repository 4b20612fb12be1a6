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
  // `timeout`, `pkill` and job schedulers signal the launcher, which passes it on, and the ranks.
  constexpr int64_t kSameRequest = 1000;
  if (requested != 0) {
    if (milliseconds() - requested_at.load() >= kSameRequest) ::_exit(130);
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
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
  // A file-size limit must show as a failed write with its cause, not as a killed process; and
  // Ctrl-C ends the `tee` that reads the console before the last checkpoint is written.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupt_requested() { return requested != 0; }

}  // namespace shardloom
