#include "shardloom/distributed/launcher_process.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "shardloom/base/error.h"

namespace shardloom::distributed {
namespace {

OutputChannel make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw DistributedError("cannot make a pipe: {}", std::strerror(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

OutputChannel make_terminal(int like_fd) {
  winsize size{};
  ::ioctl(like_fd, TIOCGWINSZ, &size);
  termios mode{};
  ::cfmakeraw(&mode);
  int master = -1, slave = -1;
  if (::openpty(&master, &slave, nullptr, &mode, &size) != 0)
    throw DistributedError("cannot make a pseudo-terminal: {}", std::strerror(errno));
  for (const int fd : {master, slave}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return {UniqueFd(master), UniqueFd(slave)};
}

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const auto& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Only what may follow fork() in a process with threads; on failure writes errno to `report`.
[[noreturn]] void run_child(
    char* const* arguments, char* const* environment, int out, int err, int report, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before prctl
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int in = ::open("/dev/null", O_RDONLY);
  if (in >= 0 && ::dup2(in, STDIN_FILENO) >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 &&
      ::dup2(err, STDERR_FILENO) >= 0) {
    ::execvpe(arguments[0], arguments, environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(report, &error, sizeof(error));
  ::_exit(127);
}

}  // namespace

OutputChannel make_output_channel(std::optional<int> like_fd) {
  OutputChannel channel =
      like_fd && ::isatty(*like_fd) == 1 ? make_terminal(*like_fd) : make_pipe();
  ::fcntl(channel.read_end.get(), F_SETFL, O_NONBLOCK);
  return channel;
}

pid_t start_process(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment,
                    int out,
                    int err) {
  const std::vector<char*> arguments = c_strings(command);
  const std::vector<char*> variables = c_strings(environment);
  OutputChannel report = make_pipe();
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    run_child(arguments.data(), variables.data(), out, err, report.write_end.get(), parent);
  }
  if (child < 0)
    throw DistributedError("cannot start \"{}\": {}", command[0], std::strerror(errno));
  // In the child too: whoever comes first, the group exists before anybody signals it.
  ::setpgid(child, child);
  report.write_end.reset();
  int error = 0;
  // Nothing to read: exec has closed the other end.
  if (::read(report.read_end.get(), &error, sizeof(error)) != sizeof(error)) return child;
  ::waitpid(child, nullptr, 0);
  throw DistributedError("cannot start \"{}\": {}", command[0], std::strerror(error));
}

std::optional<int> reap_process(pid_t process) {
  siginfo_t info{};
  // WNOWAIT keeps the process id, and with it the group's, ours while the group is killed.
  if (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    throw InternalError("cannot wait for process {}: {}", process, std::strerror(errno));
  if (info.si_pid == 0) return std::nullopt;
  ::kill(-process, SIGKILL);
  int status = 0;
  ::waitpid(process, &status, 0);
  return status;
}

}  // namespace shardloom::distributed
