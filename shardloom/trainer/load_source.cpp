#include "shardloom/trainer/load_source.h"

#include <algorithm>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/staged_folder.h"

namespace shardloom::trainer {
namespace {

namespace fs = std::filesystem;

bool has(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(folder / name, ignored);
}

// The kind of a folder that holds the files itself.
std::optional<LoadSource> direct_source(const fs::path& folder) {
  using Kind = LoadSource::Kind;
  if (checkpoint::is_hf_folder(folder)) return LoadSource{Kind::kHuggingFace, folder, {}};
  if (!has(folder, checkpoint::dcp::kMetadataName)) return std::nullopt;
  return LoadSource{Kind::kDcp, folder, checkpoint::iteration_of_folder(folder)};
}

LoadSource latest_source(const fs::path& root) {
  const checkpoint::Latest latest = checkpoint::read_latest(root);
  // Another rank may do the same at this moment.
  try {
    checkpoint::restore_folder(latest.folder);
  } catch (const CheckpointError&) {
    if (!fs::is_directory(latest.folder)) throw;
  }
  if (auto source = direct_source(latest.folder)) return *source;
  throw CheckpointError("{} names {}, which {}{}", (root / checkpoint::kLatestFileName).string(),
                        latest.folder.string(),
                        fs::is_directory(latest.folder)
                            ? "has no .metadata and no safetensors: it is not complete"
                            : "is not there",
                        checkpoint::choice_text(root));
}

LoadSource source_below(const fs::path& folder) {
  if (auto source = direct_source(folder)) return *source;
  if (has(folder, checkpoint::kLatestFileName)) return latest_source(folder);
  const auto iterations = checkpoint::complete_iterations(folder);
  if (!iterations.empty() || has(folder, checkpoint::kReleaseName)) {
    throw CheckpointError(
        "{} has checkpoints, but no {} that names the one to load; write it (\"{}\"), or name one "
        "of its folders",
        folder.string(), checkpoint::kLatestFileName,
        iterations.empty() ? checkpoint::kReleaseName : fmt::format("{}", iterations.back()));
  }
  throw CheckpointError(
      "{} holds no weights: neither model.safetensors, model.safetensors.index.json nor {} (a "
      "checkpoint) nor {} (a folder of checkpoints)",
      folder.string(), checkpoint::dcp::kMetadataName, checkpoint::kLatestFileName);
}

}  // namespace

LoadSource find_load_source(const config::TrainConfig& config) {
  using Kind = LoadSource::Kind;
  const auto& training = config.training;
  if (config.model.random_init) return {};
  if (!training.load) return {Kind::kHuggingFace, config.model.model_name_or_path, {}};
  const LoadSource source = source_below(*training.load);
  const char* const format = source.kind == Kind::kDcp ? "dcp" : "hf";
  if (training.load_format != "auto" && training.load_format != format) {
    throw CheckpointError("{} is a folder of format {}, but training.load_format is {}",
                          source.folder.string(), format, training.load_format);
  }
  return source;
}

}  // namespace shardloom::trainer
