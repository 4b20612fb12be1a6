// PyTorch's nccl backend, for CUDA tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace shardloom::distributed {

// On the current CUDA device. `place` ("rank 1, group dp, set-up") is for messages. Throws
// DistributedError when this build has no such backend, its libraries cannot be loaded, or there is
// no device.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank,
                                                    int size,
                                                    const std::string& place,
                                                    std::chrono::milliseconds timeout);

}  // namespace shardloom::distributed
