#include "shardloom/trainer/checkpointing.h"

#include "shardloom/base/log.h"
#include "shardloom/checkpoint/collective_text.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/trainer/sharding.h"

namespace shardloom::trainer {
namespace {

namespace fs = std::filesystem;

// For a run that was killed a moment ago.
constexpr std::chrono::seconds kLockPatience{2};

// Only a checkpoint without optimizer and generators has a form that other programs read as a
// model.
bool saves_dcp(const config::TrainingConfig& training, const LoadSource& source) {
  if (training.save_format != "auto") return training.save_format == "dcp";
  const bool weights_alone = training.no_save_optim && training.no_save_rng;
  return !weights_alone || source.kind == LoadSource::Kind::kDcp;
}

nn::Layout export_layout(const config::TrainingConfig& training, const models::Model& model) {
  return checkpoint::export_layout(training.save_hf_layout, model.layout());
}

}  // namespace

std::string hf_config(const config::TrainingConfig& training, const models::Model& model) {
  const checkpoint::DType dtype = save_dtype(training.save_ckpt_dtype);
  return model.export_config(dtype == checkpoint::DType::kF32    ? "float32"
                             : dtype == checkpoint::DType::kBF16 ? "bfloat16"
                                                                 : "float16",
                             export_layout(training, model));
}

Checkpointing::Checkpointing(const config::TrainConfig& config,
                             std::shared_ptr<distributed::Group> ranks,
                             const LoadSource& source)
    : config_(config), ranks_(std::move(ranks)) {
  const auto& training = config.training;
  if (!training.save) return;
  const fs::path root = *training.save;
  checkpoint::together(*ranks_, "training.save", [&] {
    if (ranks_->rank() == 0) open_root(source);
  });
  if (!saves_dcp(training, source)) {
    if (training.save_interval > 0 && training.save_format == "auto" && ranks_->rank() == 0)
      log::info("training.save: weights alone in Hugging Face format (no_save_optim, no_save_rng)");
    return;
  }
  saver_ = std::make_unique<checkpoint::CheckpointSaver>(
      root, ranks_,
      checkpoint::CheckpointSaverOptions{.in_background = training.save_async,
                                         .keep_last = training.keep_last});
  std::error_code ignored;
  if (source.iteration &&
      fs::equivalent(source.folder, checkpoint::checkpoint_folder(root, source.iteration), ignored))
    saved_ = source.iteration;
}

void Checkpointing::open_root(const LoadSource& source) {
  const fs::path root = *config_.training.save;
  lock_.emplace(root, kLockPatience);
  checkpoint::remove_leftovers(root);
  const auto there = checkpoint::complete_iterations(root);
  const int64_t begin = source.iteration.value_or(0);
  if (there.empty() || there.back() <= begin) return;
  log::warn(
      "training.save: {} has checkpoints of up to iteration {}; this run begins after iteration {} "
      "and replaces them one by one. To go on from the latest: training.load={}",
      root.string(), there.back(), begin, root.string());
}

void Checkpointing::prepare(const RunTensors& run, const TrainState& state) {
  if (!saver_ || !config_.training.save_async) return;
  saver_->prepare(checkpoint_contents(config_.training, run, state, 0, ranks_->rank()));
}

bool Checkpointing::is_due(int64_t iteration) const {
  const int64_t interval = config_.training.save_interval;
  return config_.training.save && interval > 0 && iteration % interval == 0;
}

void Checkpointing::save(const models::Model& model,
                         const WeightSources& sources,
                         const RunTensors& run,
                         const TrainState& state,
                         double next_lr) {
  if (!config_.training.save || saved_ == state.iteration) return;
  if (saver_) {
    saver_->save(state.iteration,
                 checkpoint_contents(config_.training, run, state, next_lr, ranks_->rank()));
  } else {
    export_weights(model, sources, run, state.iteration);
  }
  saved_ = state.iteration;
}

void Checkpointing::after_step(bool any_rank_is_writing) {
  if (saver_ && !any_rank_is_writing) saver_->finish();
}

void Checkpointing::finish() {
  if (saver_) saver_->finish();
}

void Checkpointing::export_weights(const models::Model& model,
                                   const WeightSources& sources,
                                   const RunTensors& run,
                                   int64_t iteration) {
  const auto& training = config_.training;
  const fs::path root = *training.save;
  const fs::path folder = checkpoint::checkpoint_folder(root, iteration);
  checkpoint::HfExportOptions options;
  options.dtype = save_dtype(training.save_ckpt_dtype);
  options.config_json = hf_config(training, model);
  const nn::Layout layout = export_layout(training, model);
  options.other_layout = nn::is_hf(layout) != nn::is_hf(model.layout());
  options.copy_files_from = config_.model.model_name_or_path;
  options.replace = true;
  options.group = ranks_;
  checkpoint::export_hf_weights(folder, sources.at(layout), sharded_tensors(run.parameters),
                                options);
  if (ranks_->rank() == 0) {
    checkpoint::write_latest(root, iteration);
    if (training.keep_last > 0) checkpoint::remove_older(root, iteration, training.keep_last);
  }
  log::info("saved {} (Hugging Face format)", folder.string());
}

}  // namespace shardloom::trainer
