// What the launcher's tests launch: `launch ...` is the real command, `act WHAT [WHO] [VALUE]` is a
// rank that behaves in one way; ranks that are not WHO wait until they are told to end.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/cli/command.h"
#include "shardloom/distributed/launcher.h"

namespace shardloom {
namespace {

using std::chrono::milliseconds;

struct Act {
  std::string what;
  int who = 0;
  std::string value;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "-";
}

int rank() { return std::atoi(variable("RANK").c_str()); }

void put(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t n = ::write(fd, text.data(), text.size());
}

void sleep_ms(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

// As a run does: ends with 130 at the end of a step once it was interrupted.
int run_until_told() {
  log::set_rank(rank(), std::atoi(variable("WORLD_SIZE").c_str()));
  install_interrupt_handlers();
  put(STDOUT_FILENO, fmt::format("ready {}\n", ::getpid()));
  while (!interrupt_requested()) sleep_ms(10);
  sleep_ms(200);  // for a launcher that kills too early
  put(STDOUT_FILENO, "told once\n");
  return 130;
}

int print_environment(const Act&) {
  std::string line;
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "OMP_NUM_THREADS", "TORCHELASTIC_USE_AGENT_STORE"}) {
    line += fmt::format("{}={} ", name, variable(name));
  }
  line += fmt::format("group={}", ::getpgrp() == ::getpid() ? "own" : "shared");
  put(STDOUT_FILENO, line + "\n");
  return 0;
}

// Listens on MASTER_PORT on rank 0, as c10d's store does.
int listen_on_port(const Act&) {
  if (rank() != 0) return 0;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(variable("MASTER_PORT"))));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return 70;
  if (::listen(fd, 1) != 0) return 70;
  put(STDOUT_FILENO, variable("MASTER_PORT") + "\n");
  sleep_ms(200);
  return 0;
}

int fail_with(const Act& act) {
  log::error("line {} is bad", rank());
  return std::stoi(act.value);
}

int raise_signal(const Act& act) {
  sleep_ms(100);  // the others are ready
  const int signal = std::stoi(act.value);
  ::signal(signal, SIG_DFL);  // sanitizers handle some
  ::raise(signal);
  return 0;
}

// Every rank finds the same two errors.
int fail_alike(const Act& act) {
  log::error("{}", act.value == "one" ? "a.yaml:3:1: bad" : "a.yaml:3:1: bad\na.yaml:9:2: worse");
  return 2;
}

int print_lines(const Act&) {
  for (int i = 0; i < 5; ++i) {
    put(STDOUT_FILENO, "line\n");
    sleep_ms(100);
  }
  return 0;
}

int ignore_signals(const Act&) {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  put(STDOUT_FILENO, fmt::format("ready {}\n", ::getpid()));
  for (;;) ::pause();
}

// Fails while the others ignore what they are told.
int fail_among_deaf(const Act& act) {
  if (rank() != act.who) return ignore_signals(act);
  sleep_ms(300);  // until the others do
  return fail_with(act);
}

// The cause, and a rank that sees the cause's connection go.
int fail_and_drag(const Act& act) {
  install_interrupt_handlers();
  if (rank() == act.who) {
    sleep_ms(std::stoi(act.value));
    log::error("data.jsonl:3: no such picture");
    return 3;
  }
  sleep_ms(50);  // the cause takes signals by now
  log::error("connection closed by rank {}", act.who);
  return 5;
}

int print_pieces(const Act&) {
  for (int i = 0; i < 50; ++i) {
    put(STDOUT_FILENO, fmt::format("<{} be", i));
    std::this_thread::yield();
    put(STDOUT_FILENO, "gin and end>\n");
  }
  put(STDERR_FILENO, "last words");
  return 0;
}

int print_bytes(const Act&) {
  put(STDOUT_FILENO, std::string(200'000, 'x') + "\r\n\n" + std::string(1, '\0') + "no end");
  return 0;
}

// Leaves a child of its own behind, which holds the pipes open.
int leave_child(const Act&) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  put(STDOUT_FILENO, fmt::format("ready {}\n", child));
  return 0;
}

int draw_bar(const Act&) {
  put(STDERR_FILENO, ::isatty(STDERR_FILENO) == 1 ? "\r\033[Kbar 1/2" : "no terminal");
  return 0;
}

// An error message does not end the run: shown while the rank lives, which goes on.
int complain_and_wait(const Act&) {
  log::error("this one passes");
  return run_until_told();
}

int act(const Act& act) {
  static const std::map<std::string, int (*)(const Act&)> everywhere = {
      {"environment", print_environment},
      {"listen", listen_on_port},
      {"fail_alike", fail_alike},
      {"drag", fail_and_drag},
      {"deaf", fail_among_deaf},
      {"pieces", print_pieces},
      {"bytes", print_bytes},
      {"ignore", ignore_signals},
      {"lines", print_lines},
      {"leave_child", leave_child},
      {"bar", draw_bar},
      {"complain", complain_and_wait}};
  static const std::map<std::string, int (*)(const Act&)> one_rank = {{"fail", fail_with},
                                                                      {"raise", raise_signal}};
  if (const auto found = everywhere.find(act.what); found != everywhere.end())
    return found->second(act);
  if (const auto found = one_rank.find(act.what); found != one_rank.end()) {
    if (rank() == act.who) return found->second(act);
  }
  return run_until_told();
}

int run(int argc, char** argv) {
  log::set_rank(rank(), std::atoi(variable("WORLD_SIZE").c_str()));
  CLI::App app("ranks for tests", "rank_program");
  cli::Action action;
  cli::add_launch_command(app, action);
  Act what;
  CLI::App* command = app.add_subcommand("act");
  command->add_option("what", what.what);
  command->add_option("who", what.who);
  command->add_option("value", what.value);
  command->callback([&] { action = [&] { return act(what); }; });
  int nproc = 0;
  CLI::App* self = app.add_subcommand("self");
  self->add_option("nproc", nproc);
  self->callback([&] {
    action = [&] {
      distributed::LaunchOptions options;
      options.command = {"act", "environment"};
      options.nproc = nproc;
      return distributed::launch_self(std::move(options));
    };
  });
  try {
    app.parse(argc, argv);
    return action();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    log::error("{}", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace shardloom

int main(int argc, char** argv) { return shardloom::run(argc, argv); }
