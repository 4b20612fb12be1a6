#include "tests/distributed/ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "shardloom/base/error.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::distributed::testing {
namespace {

[[noreturn]] void run_child(const RankBody& body, int rank, int size, const std::string& file) {
  at::set_num_threads(1);
  try {
    body({rank, size, c10::make_intrusive<c10d::FileStore>(file, size)});
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

// A rank that has been stopped does not hear its alarm.
int wait_for(pid_t pid, std::chrono::steady_clock::time_point deadline) {
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

}  // namespace

std::vector<int> run_ranks(int size, const RankBody& body, unsigned alarm_seconds) {
  const TemporaryFolder folder;
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::alarm(alarm_seconds);
      run_child(body, rank, size, (folder.path() / "store").string());
    }
    pids.push_back(pid);
  }
  std::vector<int> codes;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(alarm_seconds + 5);
  for (const pid_t pid : pids) {
    const int status = wait_for(pid, deadline);
    codes.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

void expect_ranks(int size, const RankBody& body) {
  EXPECT_EQ(run_ranks(size, body), std::vector<int>(size, 0));
}

std::string suffix(BackendKind backend) { return backend == BackendKind::kShm ? "Shm" : "Gloo"; }

std::string distributed_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const DistributedError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no DistributedError";
  return "";
}

at::Tensor rank_values(int rank, std::vector<int64_t> shape, at::ScalarType dtype, int seed) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  const at::Tensor index = at::arange(numel, at::kLong);
  const at::Tensor mixed = (index * 7919 + rank * 104729 + seed * 1299709).remainder(1000003);
  if (c10::isIntegralType(dtype, true)) return mixed.remainder(251).to(dtype).reshape(shape);
  // Magnitudes over 2^12, so that fp32 sums of three depend on the order.
  const at::Tensor scale = at::exp2((mixed.remainder(13) - 6).to(at::kDouble));
  return ((mixed.to(at::kDouble) / 500001.5 - 1) * scale).to(dtype).reshape(shape);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0);
}

}  // namespace shardloom::distributed::testing
