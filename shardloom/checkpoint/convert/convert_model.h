// What a conversion must know of the model whose weights it moves. The caller asks the registry of
// models, which this room does not see.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/hf_keys.h"

namespace shardloom::checkpoint {

struct ConvertModel {
  SourcesOfLayout sources;
  nn::Layout layout = nn::Layout::kRemoteCode;  // of files without any to look at
  // HF keys that the model does without on purpose.
  std::function<bool(const std::string&)> may_ignore;
  // config.json text with this torch_dtype ("float32"), the number of layers as built, and weights
  // in this layout.
  std::function<std::string(const std::string& torch_dtype, nn::Layout layout)> config;
};

// The model of a folder's config.json; with a number, cut to that many layers.
using DescribeModel = std::function<ConvertModel(std::optional<int64_t> num_hidden_layers)>;

// Of the whole parameter that the pieces fill.
std::vector<int64_t> parameter_shape(const nn::WeightSource& source);

// The sources with `prefix` in front of every key of the files.
std::vector<nn::WeightSource> with_prefix(std::vector<nn::WeightSource> sources,
                                          const std::string& prefix);

// Bytes of one block that a thread prepares.
inline constexpr uint64_t kBlockBytes = 4 << 20;
// More do not make a disk faster, and each has buffers.
inline constexpr int kMaxConvertThreads = 8;

// Throws CheckpointError when the disk that `folder` will be on has less than `bytes` free.
void require_space(const std::filesystem::path& folder, uint64_t bytes);

struct ConvertSummary {
  std::filesystem::path folder;  // that was written
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

}  // namespace shardloom::checkpoint
