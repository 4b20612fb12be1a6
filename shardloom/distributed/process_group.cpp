#include "shardloom/distributed/process_group.h"

#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/fake_backend.h"
#include "shardloom/distributed/foreign_error.h"
#include "shardloom/distributed/gloo_backend.h"
#include "shardloom/distributed/nccl_backend.h"
#include "shardloom/distributed/shm_backend.h"
#include "shardloom/distributed/torch_log.h"
#include "shardloom/distributed/watchdog.h"

namespace shardloom::distributed {
namespace {

// Processes with equal values can open each other's /proc/<pid>/fd: one boot of one kernel, one
// space of process numbers, one user.
std::string host_identity() {
  struct stat pid_space {};
  ::stat("/proc/self/ns/pid", &pid_space);
  const std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  return fmt::format("{} {} {}", trim(boot), pid_space.st_ino, ::getuid());
}

// The first thing that ranks wait for is that the others are there at all.
struct PeerWait {
  c10d::Store& store;
  std::string place;
  std::chrono::milliseconds timeout;

  void for_key(const std::string& key, int peer) const {
    using Clock = std::chrono::steady_clock;
    const auto limit = watchdog_limit();
    const Clock::time_point begin = Clock::now();
    while (true) {
      const auto left =
          timeout - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
      const bool is_last = limit.count() == 0 || left <= limit;
      try {
        store.wait({key}, std::max(is_last ? left : limit, std::chrono::milliseconds(1)));
        return;
      } catch (const std::exception& error) {
        if (std::string_view(error.what()).find("imeout") == std::string_view::npos)
          throw DistributedError("{}: waiting for rank {}: {}", place, peer,
                                 short_text(error.what()));
      }
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (is_last) {
        throw DistributedError(
            "{}: rank {} has not come within {:.0f} s; has it been started, with the same "
            "MASTER_ADDR, MASTER_PORT and WORLD_SIZE?",
            place, peer, seconds);
      }
      log::warn("{}: waiting for rank {} since {:.0f} s; has it been started?", place, peer,
                seconds);
    }
  }
};

bool on_one_host(c10d::Store& store,
                 int rank,
                 const std::vector<int>& world_ranks,
                 const std::string& group_name,
                 std::chrono::milliseconds timeout) {
  const auto key = [](int peer) { return fmt::format("host/{}", peer); };
  const std::string own = host_identity();
  store.set(key(rank), own);
  bool same = true;
  const PeerWait wait{
      store, fmt::format("rank {}, group {}, set-up", world_ranks[rank], group_name), timeout};
  for (int peer = 0; peer < static_cast<int>(world_ranks.size()); ++peer) {
    wait.for_key(key(peer), world_ranks[peer]);
    same = same && store.get_to_str(key(peer)) == own;
  }
  return same;
}

}  // namespace

BackendKind parse_backend_kind(std::string_view name) {
  static const std::vector<std::pair<std::string, BackendKind>> kinds = {
      {"auto", BackendKind::kAuto},
      {"gloo", BackendKind::kGloo},
      {"shm", BackendKind::kShm},
      {"nccl", BackendKind::kNccl},
      {"fake", BackendKind::kFake}};
  std::vector<std::string> names;
  for (const auto& [known, kind] : kinds) {
    if (name == known) return kind;
    names.push_back(known);
  }
  throw ConfigError("unknown backend '{}'{}; there are {}", name, did_you_mean(name, names),
                    shardloom::join(names, ", "));
}

c10::intrusive_ptr<c10d::Backend> make_backend(BackendKind kind,
                                               const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank,
                                               int size,
                                               const std::string& group_name,
                                               std::chrono::milliseconds timeout,
                                               std::vector<int> world_ranks,
                                               c10::Device device) {
  SHARDLOOM_CHECK(size > 0 && rank >= 0 && rank < size, "rank {} of {} in group {}", rank, size,
                  group_name);
  if (kind == BackendKind::kFake) return c10::make_intrusive<FakeBackend>(rank, size);
  const QuietTorchLog quiet;
  if (world_ranks.empty()) {
    world_ranks.resize(size);
    std::iota(world_ranks.begin(), world_ranks.end(), 0);
  }
  auto group_store = c10::make_intrusive<c10d::PrefixStore>("shardloom/" + group_name, store);
  if (kind == BackendKind::kAuto && device.is_cuda()) kind = BackendKind::kNccl;
  if (kind == BackendKind::kAuto) {
    const bool same = on_one_host(*group_store, rank, world_ranks, group_name, timeout);
    kind = same ? BackendKind::kShm : BackendKind::kGloo;
  }
  if (kind == BackendKind::kGloo) {
    return make_gloo_backend(group_store, rank, world_ranks, group_name, timeout);
  }
  if (kind == BackendKind::kNccl) {
    const std::string place =
        fmt::format("rank {}, group {}, set-up", world_ranks[rank], group_name);
    return make_nccl_backend(group_store, rank, size, place, timeout);
  }
  return c10::make_intrusive<ShmBackend>(*group_store, rank, std::move(world_ranks), group_name,
                                         timeout);
}

}  // namespace shardloom::distributed
