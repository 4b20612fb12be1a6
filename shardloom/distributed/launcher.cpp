#include "shardloom/distributed/launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "shardloom/base/cores.h"
#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/launcher_address.h"
#include "shardloom/distributed/launcher_output.h"
#include "shardloom/distributed/launcher_process.h"
#include "shardloom/distributed/launcher_signals.h"
#include "shardloom/distributed/launcher_verdict.h"

namespace shardloom::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The error of a rank that lives on is shown after this time.
constexpr milliseconds kKeepError{1000};
// Longest sleep: signals wake the launcher, this is for a SIGCHLD that another thread swallowed.
constexpr milliseconds kMaxSleep{500};

// More of them are a slip of the keyboard that would take the whole memory of the host.
constexpr int kMostRanksPerCore = 16;

struct Rank {
  int rank;
  pid_t process;
  RankOutput output;
  bool running = true;
};

void check_sizes(const LaunchOptions& options) {
  if (options.command.empty()) throw ConfigError("nothing to launch: the command is empty");
  if (options.nproc < 1)
    throw ConfigError("{} processes per host asked for; at least 1 is needed", options.nproc);
  if (options.nproc > kMostRanksPerCore * num_cores()) {
    throw ConfigError(
        "{} processes per host asked for, but this host has {} core{}; at most {} a core",
        options.nproc, num_cores(), num_cores() == 1 ? "" : "s", kMostRanksPerCore);
  }
  if (options.nnodes < 1)
    throw ConfigError("{} hosts asked for; at least 1 is needed", options.nnodes);
  if (options.node_rank < 0 || options.node_rank >= options.nnodes) {
    throw ConfigError("node rank {} does not fit {} host{}: it must be 0 to {}", options.node_rank,
                      options.nnodes, options.nnodes == 1 ? "" : "s", options.nnodes - 1);
  }
}

// This process's environment with the variables of a rank in place of those that were there.
std::vector<std::string> rank_environment(const LaunchOptions& options,
                                          const MasterAddress& master,
                                          int local_rank) {
  std::vector<std::pair<std::string, std::string>> set = {
      {"RANK", std::to_string(options.node_rank * options.nproc + local_rank)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(options.nnodes * options.nproc)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.nproc)},
      {"MASTER_ADDR", master.host},
      {"MASTER_PORT", std::to_string(master.port)}};
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    set.emplace_back("OMP_NUM_THREADS", std::to_string(share_of_cores(options.nproc)));
  }
  // Of a torchrun around us: its store is not the one that our ranks shall use.
  const std::string agent_store = "TORCHELASTIC_USE_AGENT_STORE";
  std::vector<std::string> environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool is_set = std::any_of(set.begin(), set.end(),
                                    [&](const auto& variable) { return variable.first == name; });
    if (!is_set && name != agent_store) environment.push_back(text);
  }
  for (const auto& [name, value] : set) environment.push_back(name + "=" + value);
  return environment;
}

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options) : options_(options) {}
  ~Supervisor();

  void start(const MasterAddress& master);
  int wait();

 private:
  Rank start_rank(const MasterAddress& master, int local_rank);
  bool any_running() const;
  void sleep_until_event();
  void take_signals();
  void take_ended_ranks();
  void keep_grace();
  void show_overdue_errors();
  void signal_ranks(int signal);
  RankEnd ended(const Rank& rank, int status, bool after_stop) const;
  void show_kept_errors(const RankEnd* cause);

  const LaunchOptions& options_;
  SignalEvents signals_;
  Console console_;
  std::vector<Rank> ranks_;
  std::vector<RankEnd> ends_;
  bool interrupted_ = false;
  std::optional<Clock::time_point> kill_time_;  // set once the ranks are being stopped
  bool killed_ = false;
};

Supervisor::~Supervisor() {
  if (!any_running()) return;
  signal_ranks(SIGKILL);
  for (const Rank& rank : ranks_) {
    if (rank.running) ::waitpid(rank.process, nullptr, 0);
  }
}

Rank Supervisor::start_rank(const MasterAddress& master, int local_rank) {
  const int rank = options_.node_rank * options_.nproc + local_rank;
  const bool is_first = rank == 0;
  OutputChannel out = make_output_channel(is_first ? std::optional(STDOUT_FILENO) : std::nullopt);
  OutputChannel err = make_output_channel(is_first ? std::optional(STDERR_FILENO) : std::nullopt);
  const pid_t process =
      start_process(options_.command, rank_environment(options_, master, local_rank),
                    out.write_end.get(), err.write_end.get());
  const bool live = is_first && (::isatty(STDOUT_FILENO) == 1 || ::isatty(STDERR_FILENO) == 1);
  return {rank, process,
          RankOutput(rank, std::move(out.read_end), std::move(err.read_end), live, console_)};
}

void Supervisor::start(const MasterAddress& master) {
  for (int local_rank = 0; local_rank < options_.nproc; ++local_rank)
    ranks_.push_back(start_rank(master, local_rank));
}

bool Supervisor::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

int Supervisor::wait() {
  while (any_running()) {
    sleep_until_event();
    take_signals();
    for (Rank& rank : ranks_) rank.output.read_available();
    take_ended_ranks();
    keep_grace();
    show_overdue_errors();
  }
  const RankEnd* cause = first_cause(ends_);
  show_kept_errors(cause);
  if (cause != nullptr) {
    console_.write_line(STDERR_FILENO, fmt::format("error: {}\n", describe(*cause)));
    return launcher_exit_code(*cause);
  }
  const bool all_well = std::all_of(ends_.begin(), ends_.end(), [](const RankEnd& end) {
    return end.exit_code == 0 && end.signal == 0;
  });
  return static_cast<int>(all_well ? ExitCode::kOk : ExitCode::kInterrupted);
}

void Supervisor::sleep_until_event() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_) rank.output.add_poll_fds(fds);
  milliseconds sleep = kMaxSleep;
  if (kill_time_ && !killed_) {
    const auto left = std::chrono::ceil<milliseconds>(*kill_time_ - Clock::now());
    sleep = std::clamp(left, milliseconds(0), kMaxSleep);
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(sleep.count()));
}

void Supervisor::take_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (interrupted_ || kill_time_) {
      killed_ = true;
      signal_ranks(SIGKILL);
    } else {
      signal_ranks(*signal == SIGHUP ? SIGTERM : *signal);
    }
    interrupted_ = true;
  }
}

void Supervisor::take_ended_ranks() {
  // The ranks found in one go had not been told to end because of each other.
  const bool after_stop = interrupted_ || kill_time_.has_value();
  bool stop_others = false;
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    const std::optional<int> status = reap_process(rank.process);
    if (!status) continue;
    rank.running = false;
    rank.output.finish();
    const RankEnd& end = ends_.emplace_back(ended(rank, *status, after_stop));
    const bool followed_interrupt =
        interrupted_ && end.exit_code == static_cast<int>(ExitCode::kInterrupted);
    if ((end.exit_code != 0 && !followed_interrupt) || end.signal != 0) stop_others = true;
  }
  if (stop_others && !kill_time_) {
    signal_ranks(SIGTERM);
    kill_time_ = Clock::now() + options_.grace;
  }
}

RankEnd Supervisor::ended(const Rank& rank, int status, bool after_stop) const {
  RankEnd end;
  end.rank = rank.rank;
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_code = WEXITSTATUS(status);
  }
  end.after_stop = after_stop;
  end.time = Clock::now();
  const std::string_view error = trim(rank.output.error());
  end.error = error.substr(0, error.find('\n'));
  end.error_continues = end.error.size() < error.size();
  return end;
}

void Supervisor::keep_grace() {
  if (!kill_time_ || killed_ || Clock::now() < *kill_time_) return;
  killed_ = true;
  std::vector<std::string> names;
  for (const Rank& rank : ranks_) {
    if (rank.running) names.push_back(std::to_string(rank.rank));
  }
  if (names.empty()) return;
  console_.write_line(
      STDERR_FILENO,
      fmt::format("warning: rank {} did not end within {:.1f} s of SIGTERM: killed\n",
                  join(names, ", "), options_.grace.count() / 1000.0));
  signal_ranks(SIGKILL);
}

void Supervisor::show_overdue_errors() {
  for (Rank& rank : ranks_) {
    if (rank.running && rank.output.keeps_error_since(Clock::now() - kKeepError))
      rank.output.show_error();
  }
}

void Supervisor::signal_ranks(int signal) {
  for (const Rank& rank : ranks_) {
    if (rank.running) ::kill(-rank.process, signal);
  }
}

// The cause's message is in the last line; what else is shown is what that line does not say.
void Supervisor::show_kept_errors(const RankEnd* cause) {
  const auto is_cause = [cause](const Rank& rank) {
    return cause != nullptr && rank.rank == cause->rank;
  };
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), is_cause);
  for (Rank& rank : ranks_) {
    const bool is_repetition =
        found != ranks_.end() && rank.output.error() == found->output.error();
    if (is_repetition && !(is_cause(rank) && cause->error_continues)) rank.output.drop_error();
  }
  for (Rank& rank : ranks_) {
    if (!is_cause(rank)) rank.output.show_error();
  }
  if (found != ranks_.end()) found->output.show_error();
}

}  // namespace

int launch(const LaunchOptions& options) {
  check_sizes(options);
  const MasterAddress master = find_master_address(options);
  Supervisor supervisor(options);
  supervisor.start(master);
  return supervisor.wait();
}

int launch_self(LaunchOptions options) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  options.command.insert(options.command.begin(), self.string());
  return launch(options);
}

}  // namespace shardloom::distributed
