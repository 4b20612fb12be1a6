// The list of globals that a pickle may name.
#include <algorithm>
#include <array>

#include "shardloom/checkpoint/dcp/torch_dtype.h"
#include "shardloom/checkpoint/dcp/unpickler.h"

namespace shardloom::checkpoint::dcp {
namespace {

constexpr std::array<std::string_view, 23> kGlobals = {
    "_codecs encode",
    "collections OrderedDict",
    "pathlib PosixPath",
    "pathlib WindowsPath",
    "pathlib._local PosixPath",
    "pathlib._local WindowsPath",
    "torch Size",
    "torch.serialization _get_layout",
    "torch.storage UntypedStorage",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch.distributed._shard.sharded_tensor.metadata MEM_FORMAT_ENCODING",
    "torch.distributed._shard.sharded_tensor.metadata TensorProperties",
    "torch.distributed.checkpoint.filesystem _StorageInfo",
    "torch.distributed.checkpoint.metadata BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata Metadata",
    "torch.distributed.checkpoint.metadata MetadataIndex",
    "torch.distributed.checkpoint.metadata StorageMeta",
    "torch.distributed.checkpoint.metadata TensorProperties",
    "torch.distributed.checkpoint.metadata TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING",
};

}  // namespace

bool is_known_global(std::string_view global) {
  return std::find(kGlobals.begin(), kGlobals.end(), global) != kGlobals.end() ||
         is_torch_dtype_global(global) || is_torch_storage_global(global);
}

}  // namespace shardloom::checkpoint::dcp
