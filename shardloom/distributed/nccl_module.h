// The one function of libshardloom_nccl.so, which holds all code that needs CUDA's and nccl's
// headers. It is loaded at run time (nccl_backend.h), so that one program serves all machines.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace shardloom::distributed {

inline constexpr const char* kNcclModule = "libshardloom_nccl.so";
inline constexpr const char* kMakeNcclBackend = "shardloom_make_nccl_backend";

// Returns an owned reference (c10::intrusive_ptr::reclaim); throws c10 and standard exceptions.
using MakeNcclBackend = c10d::Backend*(const c10::intrusive_ptr<c10d::Store>& store,
                                       int rank,
                                       int size,
                                       std::chrono::milliseconds timeout);

}  // namespace shardloom::distributed
