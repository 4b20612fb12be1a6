// Where a run takes its weights from, and whether it goes on from a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shardloom/config/train_config.h"

namespace shardloom::trainer {

struct LoadSource {
  enum class Kind { kRandom, kHuggingFace, kDcp };

  Kind kind = Kind::kRandom;
  std::filesystem::path folder;  // with the files themselves; empty: random
  // By the folder's name; nothing where it tells none.
  std::optional<int64_t> iteration;
};

// training.load is a Hugging Face folder, a folder with .metadata, or the folder above iter_* or
// release whose latest_checkpointed_iteration.txt names one of these; without it,
// model.model_name_or_path. Looks at names only, and brings back a checkpoint whose replacement a
// crash has interrupted. Throws CheckpointError: nothing there is a checkpoint, the one that is
// named is missing or has no .metadata, or training.load_format asks for the other format.
LoadSource find_load_source(const config::TrainConfig& config);

}  // namespace shardloom::trainer
