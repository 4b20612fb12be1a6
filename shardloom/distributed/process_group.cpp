#include "shardloom/distributed/process_group.h"

#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/fake_backend.h"
#include "shardloom/distributed/gloo_backend.h"
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
                 int size,
                 const std::string& group_name,
                 std::chrono::milliseconds timeout) {
  const auto key = [](int peer) { return fmt::format("host/{}", peer); };
  const std::string own = host_identity();
  store.set(key(rank), own);
  bool same = true;
  for (int peer = 0; peer < size; ++peer) {
    try {
      store.wait({key(peer)}, timeout);
    } catch (const std::exception& error) {
      const std::string_view text = error.what();
      throw DistributedError("rank {}, group {}, set-up: waiting for rank {}: {}", rank, group_name,
                             peer, text.substr(0, text.find('\n')));
    }
    same = same && store.get_to_str(key(peer)) == own;
  }
  return same;
}

}  // namespace

BackendKind parse_backend_kind(std::string_view name) {
  if (name == "auto") return BackendKind::kAuto;
  if (name == "gloo") return BackendKind::kGloo;
  if (name == "shm") return BackendKind::kShm;
  if (name == "fake") return BackendKind::kFake;
  throw ConfigError("unknown backend '{}'{}; there are auto, gloo, shm and fake", name,
                    did_you_mean(name, {"auto", "gloo", "shm", "fake"}));
}

c10::intrusive_ptr<c10d::Backend> make_backend(BackendKind kind,
                                               const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank,
                                               int size,
                                               const std::string& group_name,
                                               std::chrono::milliseconds timeout) {
  SHARDLOOM_CHECK(size > 0 && rank >= 0 && rank < size, "rank {} of {} in group {}", rank, size,
                  group_name);
  if (kind == BackendKind::kFake) return c10::make_intrusive<FakeBackend>(rank, size);
  auto group_store = c10::make_intrusive<c10d::PrefixStore>("shardloom/" + group_name, store);
  if (kind == BackendKind::kAuto) {
    const bool same = on_one_host(*group_store, rank, size, group_name, timeout);
    kind = same ? BackendKind::kShm : BackendKind::kGloo;
  }
  if (kind == BackendKind::kGloo) return make_gloo_backend(group_store, rank, size, timeout);
  return c10::make_intrusive<ShmBackend>(*group_store, rank, size, group_name, timeout);
}

}  // namespace shardloom::distributed
