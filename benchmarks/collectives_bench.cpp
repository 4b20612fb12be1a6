// Bandwidth of all_gather and reduce_scatter between processes of one host: the shared-memory
// backend against gloo, from private tensor to private tensor, beside plain memcpy by all ranks at
// once.
//
//   collectives_bench [RANKS=2] [MIB=64] [ROUNDS=7]
//
// A figure is the size of the whole tensor (all ranks' parts) over the time from issue to the end
// of wait(); backends take turns within a round, the median and the best of the rounds are shown.
#include <ATen/ATen.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardloom/distributed/process_group.h"

namespace shardloom::distributed {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Clock = std::chrono::steady_clock;

struct Settings {
  int ranks = 2;
  int64_t mib = 64;
  int rounds = 7;
};

// GB/s of each round, by "collective dtype backend".
using Figures = std::map<std::string, std::vector<double>>;

void measure(Figures& figures,
             const std::string& name,
             c10d::Backend& meeting,
             int64_t bytes,
             const std::function<void()>& action) {
  meeting.barrier()->wait();
  const auto start = Clock::now();
  action();
  const std::chrono::duration<double> seconds = Clock::now() - start;
  figures[name].push_back(static_cast<double>(bytes) / seconds.count() * 1e-9);
}

void measure_dtype(Figures& figures,
                   const std::map<std::string, Backend>& backends,
                   const Settings& settings,
                   at::ScalarType dtype) {
  const int64_t bytes = settings.mib << 20;
  const int64_t numel = bytes / static_cast<int64_t>(c10::elementSize(dtype)) / settings.ranks;
  at::Tensor part = at::ones({numel}, dtype);
  at::Tensor whole = at::ones({numel * settings.ranks}, dtype);
  const std::string type = dtype == at::kFloat ? "fp32" : "bf16";
  for (int round = 0; round < settings.rounds; ++round) {
    for (const auto& [name, backend] : backends) {
      measure(figures, "all_gather     " + type + " " + name, *backends.at("shm"), bytes,
              [&] { backend->_allgather_base(whole, part)->wait(); });
      measure(figures, "reduce_scatter " + type + " " + name, *backends.at("shm"), bytes,
              [&] { backend->_reduce_scatter_base(part, whole)->wait(); });
    }
  }
}

void measure_memcpy(Figures& figures, c10d::Backend& meeting, const Settings& settings) {
  const int64_t bytes = settings.mib << 20;
  const at::Tensor from = at::ones({bytes}, at::kByte);
  at::Tensor to = at::ones({bytes}, at::kByte);
  for (int round = 0; round < settings.rounds; ++round) {
    measure(figures, "memcpy", meeting, bytes,
            [&] { std::memcpy(to.data_ptr(), from.data_ptr(), static_cast<size_t>(bytes)); });
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const Figures& figures, const Settings& settings) {
  const double copy = median(figures.at("memcpy"));
  fmt::print(
      "{} ranks, {} MiB, median (best) of {} rounds; memcpy by all ranks at once {:.1f} GB/s\n",
      settings.ranks, settings.mib, settings.rounds, copy);
  for (const auto& [name, values] : figures) {
    const std::string shm = name.substr(0, name.rfind(' ')) + " shm";
    if (!name.ends_with(" gloo")) continue;
    const double ours = median(figures.at(shm));
    fmt::print(
        "{}  {:5.2f} ({:5.2f}) GB/s   gloo {:5.2f} ({:5.2f}) GB/s   {:4.1f}x   {:3.0f} % of "
        "memcpy\n",
        shm, ours, *std::max_element(figures.at(shm).begin(), figures.at(shm).end()),
        median(values), *std::max_element(values.begin(), values.end()), ours / median(values),
        100 * ours / copy);
  }
}

void run_rank(int rank, const Settings& settings, const std::string& file) {
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<c10d::FileStore>(file, settings.ranks);
  std::map<std::string, Backend> backends;
  for (const char* name : {"gloo", "shm"}) {
    backends[name] = make_backend(parse_backend_kind(name), store, rank, settings.ranks, name);
  }
  Figures figures;
  measure_memcpy(figures, *backends.at("shm"), settings);
  measure_dtype(figures, backends, settings, at::kFloat);
  measure_dtype(figures, backends, settings, at::kBFloat16);
  backends.at("shm")->barrier()->wait();
  if (rank == 0) print(figures, settings);
}

int run(const Settings& settings) {
  std::string folder = (std::filesystem::temp_directory_path() / "collectives_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_rank(rank, settings, folder + "/store");
      std::fflush(nullptr);
      ::_exit(0);
    }
    pids.push_back(pid);
  }
  int failed = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed += status != 0;
  }
  std::filesystem::remove_all(folder);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shardloom::distributed

int main(int argc, char** argv) {
  shardloom::distributed::Settings settings;
  if (argc > 1) settings.ranks = std::atoi(argv[1]);
  if (argc > 2) settings.mib = std::atoi(argv[2]);
  if (argc > 3) settings.rounds = std::atoi(argv[3]);
  return shardloom::distributed::run(settings);
}
