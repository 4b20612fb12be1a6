// Weights of an HF folder as a distributed checkpoint (DCP) with the model's own parameters: the
// experts of a layer, which HF files keep one by one as [out, in], become gate_up_proj [E*H, 2I]
// (gate in the first I columns) and down_proj [E*I, H].
#pragma once

#include <filesystem>
#include <string>

#include "shardloom/checkpoint/convert/convert_model.h"

namespace shardloom::checkpoint {

struct HfToDcpOptions {
  std::filesystem::path hf_dir;
  std::filesystem::path save_dir;
  std::string dcp_prefix;  // in front of every parameter, below "model."
  std::string hf_prefix;   // that the tensors of hf_dir carry in front of their usual names
  int threads = 1;
};

// Writes save_dir/release/{.metadata, __0_0.distcp} and, when that is in place,
// save_dir/latest_checkpointed_iteration.txt. Element types stay as they are. Streams: holds
// 2 * threads + 1 blocks of kBlockBytes and the pages that they are read from, whatever the size of
// the model. Throws CheckpointError, before anything is written, when the weights do not fit the
// model, save_dir is not empty or the disk is too small; InterruptedError on a signal.
ConvertSummary hf_to_dcp(const HfToDcpOptions& options, const DescribeModel& describe);

}  // namespace shardloom::checkpoint
