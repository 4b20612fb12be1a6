// The data of the Megatron-style path: build_mm_dataset and build_mm_dataloader of MindSpeed-MM
// (mindspeed_mm/data/__init__.py).
#pragma once

#include <memory>

#include "shardloom/data/loader.h"
#include "shardloom/trainer/parts.h"
#include "shardloom/trainer/pretrain/model_hub.h"

namespace shardloom {

// What a provider of data is told of the run.
struct DataContext {
  int64_t train_samples = 0;                // that the whole run consumes
  trainer::TrainerParts::PlaceOf place_of;  // where this rank begins in its training set
};

// All sources of data.json one behind the other, each repeat_time times. Throws DataError, and
// ConfigError with the place in data.json.
std::shared_ptr<const data::Dataset> build_mm_dataset(const PretrainArgs& args);

// This rank's loader of the training set, behind the samples that a resumed run has consumed. To be
// called once.
std::unique_ptr<data::Loader> build_mm_dataloader(std::shared_ptr<const data::Dataset> dataset,
                                                  const PretrainArgs& args,
                                                  const DataContext& context);

}  // namespace shardloom
