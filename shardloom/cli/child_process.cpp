#include "shardloom/cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/distributed/launcher_fd.h"
#include "shardloom/distributed/launcher_process.h"
#include "shardloom/distributed/launcher_signals.h"

namespace shardloom::cli {
namespace {

// For a SIGCHLD that another thread has taken.
constexpr int kMaxSleepMs = 500;

distributed::UniqueFd create(const std::filesystem::path& log) {
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw ConfigError("cannot write {}: {}", log.string(), std::strerror(errno));
  return distributed::UniqueFd(fd);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

}  // namespace

int run_logged(const std::vector<std::string>& command, const std::filesystem::path& log) {
  const distributed::UniqueFd file = create(log);
  distributed::SignalEvents signals;
  const pid_t child =
      distributed::start_process(command, own_environment(), file.get(), file.get());
  bool interrupted = false;
  std::optional<int> status;
  while (!(status = distributed::reap_process(child))) {
    pollfd event = {signals.fd(), POLLIN, 0};
    ::poll(&event, 1, kMaxSleepMs);
    while (const std::optional<int> signal = signals.next()) {
      ::kill(-child, interrupted ? SIGKILL : *signal);
      interrupted = true;
    }
  }
  interrupted = interrupted || signals.next().has_value();  // as the child ended
  if (interrupted) return static_cast<int>(ExitCode::kInterrupted);
  if (WIFSIGNALED(*status)) return static_cast<int>(ExitCode::kDistributed);
  return WEXITSTATUS(*status);
}

}  // namespace shardloom::cli
