// Weights of a distributed checkpoint (DCP), converted or trained, as an HF folder with the names
// and the orientation of the original: the way back of hf_to_dcp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "shardloom/checkpoint/convert/convert_model.h"

namespace shardloom::checkpoint {

inline constexpr uint64_t kDefaultShardBytes = 5'000'000'000;

struct DcpToHfOptions {
  std::filesystem::path hf_dir;   // the original: config.json, tokenizer and the like; its weights,
                                  // if there are any, tell which names to write
  std::filesystem::path dcp_dir;  // release or iter_NNNNNNN, or the folder above: its latest
  std::filesystem::path save_dir;
  std::optional<std::string> dcp_prefix;  // nothing: found out
  std::string hf_prefix;                  // put in front of every name
  std::optional<DType> dtype;             // nothing: as stored; else BF16, F16 or F32
  uint64_t max_shard_bytes = kDefaultShardBytes;
  int threads = 1;
  std::string layout = "auto";  // export_layout(), of hf_dir
};

// Optimizer state and the like are not touched. A checkpoint with fewer layers than config.json
// says gives a config.json with its own number. Every stored piece is compared with its CRC-32.
// Streams as hf_to_dcp does. Throws CheckpointError, before anything is written, when the
// checkpoint does not fit the model, save_dir is not empty or the disk is too small;
// InterruptedError on a signal.
ConvertSummary dcp_to_hf(const DcpToHfOptions& options, const DescribeModel& describe);

}  // namespace shardloom::checkpoint
