// model.safetensors.index.json: which file of a folder holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace shardloom::checkpoint {

inline constexpr const char* kSingleFileName = "model.safetensors";
inline constexpr const char* kIndexFileName = "model.safetensors.index.json";

// File name -> names of its tensors, in the index's order of names.
using TensorsOfFile = std::map<std::string, std::vector<std::string>>;

// Throws CheckpointError when it is not JSON, has no or an empty weight_map, or names something
// that is not a plain .safetensors file of the same folder.
TensorsOfFile read_hf_index(const std::filesystem::path& path);

// Text of an index: {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}.
std::string hf_index_text(const TensorsOfFile& tensors_of_file, uint64_t total_size);

// "a, b, c and 7 more".
std::string shortened_list(const std::vector<std::string>& names);

}  // namespace shardloom::checkpoint
