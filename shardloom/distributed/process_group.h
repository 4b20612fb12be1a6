// From the environment of a process to a group of ranks that can talk.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::distributed {

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);

// Of the set-up and of each collective: SHARDLOOM_TIMEOUT_SECONDS, else kDefaultTimeout. Throws
// ConfigError.
std::chrono::milliseconds default_timeout();

// The place of this process in the world, by the names that torchrun uses (env://).
struct WorldOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // LOCAL_RANK, else RANK
  int local_world_size = 1;  // LOCAL_WORLD_SIZE, else WORLD_SIZE
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 29500;
  // TORCHELASTIC_USE_AGENT_STORE=True: torchrun's agent serves the store, and rank 0 is a client.
  bool use_agent_store = false;
  int agent_attempt = 0;  // TORCHELASTIC_RESTART_COUNT, with the agent's store

  // Throws one ConfigError that lists all that is missing or wrong.
  static WorldOptions from_environment();
};

// The key-value store of the world at master_addr:master_port; rank 0 serves it. Throws
// DistributedError naming host:port when the host has no address, the port is in use, nobody
// answers within `timeout`, or the processes there belong to another run: they disagree about the
// world's size, or one is this rank already.
c10::intrusive_ptr<c10d::Store> connect_store(const WorldOptions& world,
                                              std::chrono::milliseconds timeout = kDefaultTimeout);

enum class BackendKind {
  kAuto,  // nccl for a CUDA device; else shm when all ranks are on one host, else gloo
  kGloo,
  kShm,
  kNccl,  // where the build has it (nccl_backend.h)
  kFake,
};

// "auto", "gloo", "shm", "nccl" or "fake"; else ConfigError.
BackendKind parse_backend_kind(std::string_view name);

// Collective over the `size` ranks of the group (but for fake, which uses no store); `rank` counts
// within the group, and each group of a world needs a name of its own. A group of one rank is a
// real group. `timeout` bounds the set-up and each collective. `world_ranks` are the members for
// messages; by default they count within the group, too. `device` is the one of the tensors.
// Throws DistributedError.
c10::intrusive_ptr<c10d::Backend> make_backend(BackendKind kind,
                                               const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank,
                                               int size,
                                               const std::string& group_name,
                                               std::chrono::milliseconds timeout = kDefaultTimeout,
                                               std::vector<int> world_ranks = {},
                                               c10::Device device = c10::Device(c10::kCPU));

}  // namespace shardloom::distributed
