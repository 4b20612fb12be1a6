#include "shardloom/distributed/launcher_verdict.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

#include "shardloom/base/error.h"

namespace shardloom::distributed {
namespace {

constexpr auto kSameMoment = std::chrono::milliseconds(200);
constexpr int kDistributed = static_cast<int>(ExitCode::kDistributed);
constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);

bool has_failed(const RankEnd& end) {
  if (end.exit_code == 0 && end.signal == 0) return false;
  const bool obeyed = end.exit_code == kInterrupted || end.exit_code == kDistributed ||
                      end.signal == SIGINT || end.signal == SIGTERM || end.signal == SIGHUP ||
                      end.signal == SIGKILL;
  return !(end.after_stop && obeyed);
}

bool is_own_fault(const RankEnd& end) {
  return end.exit_code == static_cast<int>(ExitCode::kConfig) ||
         end.exit_code == static_cast<int>(ExitCode::kData) ||
         end.exit_code == static_cast<int>(ExitCode::kCheckpoint);
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  std::string text =
      fmt::format("killed by signal {}{}", signal, name ? fmt::format(" (SIG{})", name) : "");
  if (signal == SIGKILL) text += "; if nobody sent it, memory ran out (see dmesg)";
  return text;
}

}  // namespace

const RankEnd* first_cause(const std::vector<RankEnd>& ends) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (!has_failed(end)) continue;
    if (first == nullptr) first = &end;
    const bool same_moment = end.time - first->time <= kSameMoment;
    if (end.exit_code != kDistributed && (same_moment || is_own_fault(end))) {
      return first->exit_code == kDistributed ? &end : first;
    }
  }
  return first;
}

int launcher_exit_code(const RankEnd& cause) {
  if (cause.signal != 0) return kDistributed;
  for (const ExitCode code : {ExitCode::kConfig, ExitCode::kData, ExitCode::kCheckpoint,
                              ExitCode::kDistributed, ExitCode::kInterrupted}) {
    if (cause.exit_code == static_cast<int>(code)) return cause.exit_code;
  }
  return static_cast<int>(ExitCode::kInternal);
}

std::string describe(const RankEnd& cause) {
  const std::string rank = fmt::format("rank {} failed first: ", cause.rank);
  if (cause.signal != 0) {
    return rank + signal_text(cause.signal) +
           (cause.error.empty() ? "" : fmt::format("; its last error: {}", cause.error));
  }
  const char* unnamed =
      cause.exit_code == kInterrupted ? "interrupted" : "ended without an error message";
  return fmt::format("{}{} (exit code {}{})", rank, cause.error.empty() ? unnamed : cause.error,
                     cause.exit_code, cause.error_continues ? "; the whole message is above" : "");
}

}  // namespace shardloom::distributed
