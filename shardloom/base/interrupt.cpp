#include "shardloom/base/interrupt.h"

#include <unistd.h>
#include <csignal>
#include <cstring>

#include "shardloom/base/log.h"

namespace shardloom {
namespace {

volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t answers_interrupt = 1;
volatile std::sig_atomic_t answers_terminate = 1;

void on_signal(int signal) {
  if (requested != 0) ::_exit(130);
  requested = 1;
  if ((signal == SIGINT ? answers_interrupt : answers_terminate) == 0) return;
  constexpr char kText[] = "\nstopping after this step; press again to stop at once\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kText, std::strlen(kText));
}

}  // namespace

void install_interrupt_handlers() {
  answers_interrupt = log::rank() == 0 ? 1 : 0;
  answers_terminate = log::world_size() == 1 ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A file-size limit must show as a failed write with its cause, not as a killed process.
  ::signal(SIGXFSZ, SIG_IGN);
}

bool interrupt_requested() { return requested != 0; }

}  // namespace shardloom
