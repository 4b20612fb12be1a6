// The .metadata of a PyTorch distributed checkpoint (DCP): which tensors and values it holds and
// where each piece lies. A pickle of torch.distributed.checkpoint.metadata.Metadata (PyTorch 2.11);
// older files without storage_meta or version are read too. All errors are CheckpointError with
// path, key and cause.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shardloom/checkpoint/dcp/box.h"
#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint::dcp {

inline constexpr const char* kMetadataName = ".metadata";

// Where an item (a torch.save archive) lies: `length` bytes at `offset` of a file of the folder.
struct ItemRange {
  std::string file;  // "__0_0.distcp"
  uint64_t offset = 0;
  uint64_t length = 0;

  bool operator==(const ItemRange&) const = default;
};

struct TensorChunk {
  Box box;  // its part of the tensor
  ItemRange range;

  bool operator==(const TensorChunk&) const = default;
};

struct TensorEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // of the whole tensor
  std::vector<TensorChunk> chunks;

  bool operator==(const TensorEntry&) const = default;
};

// Keys from the root of the saved state to a leaf: text in a dict, int in a list. Joined by dots
// they are the leaf's name.
using StatePath = std::vector<std::variant<std::string, int64_t>>;

// By fully qualified name. planner_data is what lets PyTorch rebuild the nested state
// (dcp_to_torch_save).
struct Metadata {
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::map<std::string, ItemRange, std::less<>> values;
  std::map<std::string, StatePath, std::less<>> planner_data;

  bool operator==(const Metadata&) const = default;
};

// Reads folder/.metadata with all checks below.
Metadata read_metadata(const std::filesystem::path& folder);

// Text of a .metadata to what it says, without the checks below; `place` is its name in errors.
Metadata parse_metadata(std::string_view pickle, const std::string& place);

// The chunks of each tensor lie inside it and hold each element exactly once.
void check_coverage(const Metadata& metadata, const std::string& place);

// All files are there and long enough, and no two items share a byte. Files that nothing names are
// none of its business.
void check_files(const Metadata& metadata, const std::filesystem::path& folder);

// Text of a .metadata that PyTorch reads; parse_metadata turns it back.
std::string metadata_pickle(const Metadata& metadata);

// Adds what another rank wrote. The ranks must agree on dtype and shape; a value may come from one
// rank only. Of empty chunks at the same place one is kept, as PyTorch does.
void merge_metadata(Metadata& into, const Metadata& part, const std::string& place);

// Writes folder/.metadata, which makes the checkpoint complete: checks it and the files first, ends
// with the data on disk.
void write_metadata(const std::filesystem::path& folder, const Metadata& metadata);

}  // namespace shardloom::checkpoint::dcp
