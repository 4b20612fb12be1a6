#include "shardloom/distributed/process_group.h"

#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <numeric>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/fake_backend.h"
#include "shardloom/distributed/foreign_error.h"
#include "shardloom/distributed/gloo_backend.h"
#include "shardloom/distributed/nccl_backend.h"
#include "shardloom/distributed/shm_backend.h"

namespace shardloom::distributed {
namespace {

// Processes with equal values can open each other's /proc/<pid>/fd: one boot of one kernel, one
// space of process numbers, one user.
std::string host_identity() {
  struct stat pid_space {};
  ::stat("/proc/self/ns/pid", &pid_space);
  return fmt::format("{} {} {}", trim(read_file("/proc/sys/kernel/random/boot_id")),
                     pid_space.st_ino, ::getuid());
}

bool on_one_host(c10d::Store& store,
                 int rank,
                 const std::vector<int>& world_ranks,
                 const std::string& group_name,
                 std::chrono::milliseconds timeout) {
  const auto key = [](int peer) { return fmt::format("host/{}", peer); };
  const std::string own = host_identity();
  store.set(key(rank), own);
  bool same = true;
  for (int peer = 0; peer < static_cast<int>(world_ranks.size()); ++peer) {
    try {
      store.wait({key(peer)}, timeout);
    } catch (const std::exception& error) {
      throw DistributedError("rank {}, group {}, set-up: waiting for rank {}: {}",
                             world_ranks[rank], group_name, world_ranks[peer],
                             short_text(error.what()));
    }
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
