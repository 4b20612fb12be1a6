// What is in a checkpoint, without loading it: a safetensors file, a Hugging Face folder or a DCP
// folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint {

// The part of a tensor that one file holds.
struct DescribedPiece {
  std::string file;
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

struct DescribedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::vector<DescribedPiece> pieces;
};

// Something that is no tensor, as Python prints it.
struct DescribedValue {
  std::string name;
  std::string text;
};

struct Description {
  std::filesystem::path path;
  std::string kind;  // "safetensors file", "Hugging Face folder", "DCP folder"
  std::vector<DescribedTensor> tensors;
  std::vector<DescribedValue> values;
  std::vector<std::string> warnings;
  uint64_t total_bytes = 0;  // of the tensors
};

// Opens and checks it as a load would; throws CheckpointError with path and cause. The folder of a
// run (save_root.h) stands for its latest checkpoint, which the description names.
Description describe_checkpoint(const std::filesystem::path& path);

// A line for each tensor and value, then the totals.
std::string description_text(const Description& description);
// {"path", "kind", "total_bytes", "tensors": [{"name", "dtype", "shape", "bytes", "pieces":
// [{"file", "offsets", "sizes"}]}], "values": {name: text}, "warnings": [...]}
std::string description_json(const Description& description);

// Reads every byte of a checkpoint. DCP items carry CRC-32s, which are compared; safetensors has
// none, so that only its structure is checked, which opening does. Calls on_error for each bad
// item; returns the number of items whose checksum was compared. Throws like describe_checkpoint.
uint64_t verify_checkpoint(
    const std::filesystem::path& path,
    const std::function<void(const std::string& name, const std::string& error)>& on_error);

}  // namespace shardloom::checkpoint
