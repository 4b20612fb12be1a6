// PyTorch's own gloo backend, for CPU tensors of ranks on several hosts.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace shardloom::distributed {

// Talks over the network interface named by GLOO_SOCKET_IFNAME, else over the one from which this
// host reaches the store (the name of a host often leads to its loopback address), else over the
// one of the host's name. Throws ConfigError for an interface that does not exist,
// DistributedError when the ranks cannot be connected. `world_ranks` and `group_name` are for
// messages. From then on the process ignores SIGPIPE.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank,
                                                    const std::vector<int>& world_ranks,
                                                    const std::string& group_name,
                                                    std::chrono::milliseconds timeout);

}  // namespace shardloom::distributed
