// The saves of a run in either format, in the layout of checkpoint/save_root.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "shardloom/checkpoint/checkpoint_saver.h"
#include "shardloom/checkpoint/folder_lock.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/checkpoint_contents.h"
#include "shardloom/trainer/load_source.h"

namespace shardloom::trainer {

// config.json of a Hugging Face checkpoint of this model, by save_ckpt_dtype and save_hf_layout. To
// be asked for before training: throws CheckpointError where that layout cannot say what the model
// is.
std::string hf_config(const config::TrainingConfig& training, const models::Model& model);

// All functions are collective over the ranks of the run and do nothing without training.save.
class Checkpointing {
 public:
  // `source`: what was loaded, for save_format auto. The configuration must outlive this object.
  // Takes training.save for this run alone and removes what killed saves have left there.
  Checkpointing(const config::TrainConfig& config,
                std::shared_ptr<distributed::Group> ranks,
                const LoadSource& source);

  // After the first step, which makes the optimizer's state: begins to make the memory for saves in
  // the background.
  void prepare(const RunTensors& run, const TrainState& state);

  // A checkpoint of `state.iteration`. Nothing when that was the last one saved, or the one loaded
  // from the same folder.
  void save(const models::Model& model,
            const WeightSources& sources,
            const RunTensors& run,
            const TrainState& state,
            double next_lr);
  // Whether to save after this iteration, by training.save_interval.
  bool is_due(int64_t iteration) const;

  // This rank is writing in the background.
  bool is_writing() const { return saver_ && saver_->is_writing(); }
  // After each step: puts a checkpoint in its place as soon as no rank is writing any more.
  void after_step(bool any_rank_is_writing);
  // Waits for the one that is being written.
  void finish();

 private:
  void open_root(const LoadSource& source);
  void export_weights(const models::Model& model,
                      const WeightSources& sources,
                      const RunTensors& run,
                      int64_t iteration);

  const config::TrainConfig& config_;
  std::shared_ptr<distributed::Group> ranks_;
  std::optional<checkpoint::FolderLock> lock_;          // on the first rank
  std::optional<int64_t> saved_;                        // the last one
  std::unique_ptr<checkpoint::CheckpointSaver> saver_;  // null: Hugging Face format, or no saves
};

}  // namespace shardloom::trainer
