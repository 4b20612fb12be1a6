// Names of the classes inside a .metadata.
#pragma once

namespace shardloom::checkpoint::dcp::classes {

inline constexpr const char* kMetadata = "torch.distributed.checkpoint.metadata Metadata";
inline constexpr const char* kTensor =
    "torch.distributed.checkpoint.metadata TensorStorageMetadata";
inline constexpr const char* kBytes = "torch.distributed.checkpoint.metadata BytesStorageMetadata";
inline constexpr const char* kProperties = "torch.distributed.checkpoint.metadata TensorProperties";
inline constexpr const char* kOldProperties =
    "torch.distributed._shard.sharded_tensor.metadata TensorProperties";
inline constexpr const char* kMemoryFormat =
    "torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING";
inline constexpr const char* kChunk = "torch.distributed.checkpoint.metadata ChunkStorageMetadata";
inline constexpr const char* kIndex = "torch.distributed.checkpoint.metadata MetadataIndex";
inline constexpr const char* kStorageInfo = "torch.distributed.checkpoint.filesystem _StorageInfo";

}  // namespace shardloom::checkpoint::dcp::classes
