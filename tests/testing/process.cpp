#include "tests/testing/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>

namespace shardloom::testing {
namespace {

struct Pipe {
  int read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  return {ends[0], ends[1]};
}

[[noreturn]] void run_child(const std::vector<std::string>& command,
                            const ProcessOptions& options,
                            const Pipe& in,
                            const Pipe& out,
                            const Pipe& err) {
  ::dup2(in.read_end, STDIN_FILENO);
  ::dup2(out.write_end, STDOUT_FILENO);
  ::dup2(err.write_end, STDERR_FILENO);
  if (::chdir(SHARDLOOM_SOURCE_DIR) != 0) ::_exit(127);
  for (const auto& entry : options.environment) ::putenv(const_cast<char*>(entry.c_str()));
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

// False at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
  return n > 0;
}

}  // namespace

int find_child(int parent, const std::string& variable) {
  const std::string number = std::to_string(parent);
  std::ifstream list("/proc/" + number + "/task/" + number + "/children");
  for (int child = 0; list >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ", std::ios::binary);
    for (std::string entry; std::getline(file, entry, '\0');) {
      if (entry == variable) return child;
    }
  }
  return 0;
}

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  const Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  const pid_t child = ::fork();
  if (child == 0) run_child(command, options, in, out, err);
  for (const int fd : {in.read_end, out.write_end, err.write_end}) ::close(fd);
  // Inputs of tests fit into the pipe's buffer (64 KiB).
  if (::write(in.write_end, options.input.data(), options.input.size()) < 0)
    throw std::runtime_error("write");
  ::close(in.write_end);
  ProcessResult result;
  bool interrupted = false;
  std::array<pollfd, 2> open = {pollfd{out.read_end, POLLIN, 0}, pollfd{err.read_end, POLLIN, 0}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    ::poll(open.data(), open.size(), -1);
    if (open[0].revents != 0 && !read_some(open[0].fd, result.out)) open[0].fd = -1;
    if (open[1].revents != 0 && !read_some(open[1].fd, result.err)) open[1].fd = -1;
    if (options.interrupt_after_lines > 0 && !interrupted &&
        std::count(result.out.begin(), result.out.end(), '\n') >= options.interrupt_after_lines) {
      interrupted = true;
      if (options.instead_of_interrupt) {
        options.instead_of_interrupt(child);
      } else {
        ::kill(child, SIGINT);
      }
    }
  }
  ::close(out.read_end);
  ::close(err.read_end);
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  result.peak_bytes = usage.ru_maxrss * 1024;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace shardloom::testing
