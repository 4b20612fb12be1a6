#include "shardloom/distributed/nccl_backend.h"

#include <dlfcn.h>

#include <filesystem>

#include "shardloom/base/error.h"
#include "shardloom/distributed/foreign_error.h"
#include "shardloom/distributed/nccl_module.h"

namespace shardloom::distributed {
namespace {

// The folder of the library or program that holds this code.
std::filesystem::path own_folder() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&make_nccl_backend), &info);
  return std::filesystem::canonical(info.dli_fname).parent_path();
}

std::filesystem::path find_module() {
  const std::filesystem::path own = own_folder();
  for (const auto& folder : {own, own.parent_path() / "lib"}) {
    if (std::filesystem::exists(folder / kNcclModule)) return folder / kNcclModule;
  }
  throw DistributedError(
      "this build has no nccl backend: there is no {} in {}; it is made where cmake finds nccl.h, "
      "the CUDA headers and libtorch_cuda.so (its output says which are missing)",
      kNcclModule, own.string());
}

MakeNcclBackend* load_module() {
  const std::filesystem::path module = find_module();
  void* library = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = library == nullptr ? nullptr : ::dlsym(library, kMakeNcclBackend);
  if (function == nullptr) {
    throw DistributedError(
        "the nccl backend cannot be loaded: {}; CUDA's libraries and nccl's must be beside torch "
        "or in LD_LIBRARY_PATH",
        ::dlerror());
  }
  return reinterpret_cast<MakeNcclBackend*>(function);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank,
                                                    int size,
                                                    const std::string& place,
                                                    std::chrono::milliseconds timeout) {
  try {
    MakeNcclBackend* make = load_module();
    return c10::intrusive_ptr<c10d::Backend>::reclaim(make(store, rank, size, timeout));
  } catch (const DistributedError& error) {
    throw DistributedError("{}: {}", place, error.what());
  } catch (const std::exception& error) {
    throw DistributedError("{}: the nccl backend cannot start: {}", place,
                           short_text(error.what()));
  }
}

}  // namespace shardloom::distributed
