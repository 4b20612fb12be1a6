// What of a run its path decides: the model and how it is sharded, the data, the forward step.
// Everything else is the Trainer's, and the same for every path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shardloom/config/load.h"
#include "shardloom/data/loader.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/assembly.h"
#include "shardloom/trainer/forward_step.h"
#include "shardloom/trainer/metrics/log_line.h"
#include "shardloom/trainer/sharding.h"

namespace shardloom::trainer {

// This rank's place in a data set: after a resume not at its beginning.
struct LoaderPlace {
  data::SamplerOptions sampler;
  int64_t consumed_samples = 0;
};

struct RunData {
  std::unique_ptr<data::Loader> train;
  std::shared_ptr<const data::Dataset> validation;  // each training.val_interval steps; null: none
  std::shared_ptr<const data::Dataset> test;        // after the last step; null: none
};

struct TrainerParts {
  using PlaceOf = std::function<LoaderPlace(const data::Dataset&)>;

  // On the meta device.
  std::function<std::shared_ptr<models::Model>(const config::TrainConfig&, TokenIds)> build_model;
  std::function<ParallelModel(
      const config::TrainConfig&, models::Model&, const distributed::ParallelMeshes&)>
      make_parallel;
  // Called once; asks for the place of its training set once.
  std::function<RunData(const config::TrainConfig&, const PlaceOf&)> make_data;
  bool data_is_of_config = false;  // a data set of the registry, by data.dataset_param.dataset_type
  ForwardStep forward_step = model_forward_step;
  LineShape line_shape = LineShape::kPureFsdp2;
  WeightDecay weight_decay = WeightDecay::kAll;
  bool logs_tokens_per_sample = false;  // as a field of the log line
};

// This rank's loader of its training set, at its place.
std::unique_ptr<data::Loader> make_loader(const config::TrainConfig& config,
                                          std::shared_ptr<const data::Dataset> dataset,
                                          const TrainerParts::PlaceOf& place_of);

// Model, plans and data of the configuration file.
TrainerParts parts_of_config();

}  // namespace shardloom::trainer
