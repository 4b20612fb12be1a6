#include "shardloom/distributed/nccl_module.h"

#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <stdexcept>
#include <string>
#include <type_traits>

// ProcessGroupNCCL holds structures of nccl, whose sizes depend on its version.
static void require_same_nccl() {
  const uint64_t running = c10d::getNcclVersionNumber();
  if (running == NCCL_VERSION_CODE) return;
  throw std::runtime_error("it was built with the headers of nccl " +
                           std::to_string(NCCL_VERSION_CODE) + ", but torch runs nccl " +
                           std::to_string(running) + "; build it with the nccl.h of that version");
}

extern "C" c10d::Backend* shardloom_make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                      int rank,
                                                      int size,
                                                      std::chrono::milliseconds timeout) {
  static_assert(std::is_same_v<decltype(shardloom_make_nccl_backend),
                               shardloom::distributed::MakeNcclBackend>);
  using Nccl = c10d::ProcessGroupNCCL;
  require_same_nccl();
  auto options = Nccl::Options::create();
  options->timeout = timeout;
  auto backend = c10::make_intrusive<Nccl>(store, rank, size, options);
  // For collectives without tensors (barrier); the caller has chosen the device of this rank.
  backend->setBoundDeviceId(at::Device(at::kCUDA, c10::cuda::current_device()));
  return backend.release();
}
