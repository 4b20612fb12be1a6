// PyTorch's own gloo backend, for CPU tensors of ranks on several hosts.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace shardloom::distributed {

// Talks over the network interface named by GLOO_SOCKET_IFNAME, else over the one that the name of
// this host leads to, else over loopback. Throws ConfigError for an interface that does not exist,
// DistributedError when the ranks cannot be connected.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank,
                                                    int size,
                                                    std::chrono::milliseconds timeout);

}  // namespace shardloom::distributed
