#include "shardloom/trainer/parts.h"

namespace shardloom::trainer {
namespace {

RunData make_data(const config::TrainConfig& config, const TrainerParts::PlaceOf& place_of) {
  const auto dataset = build_dataset(config, config.data.dataset_param);
  const LoaderPlace place = place_of(*dataset);
  RunData data;
  data.train = std::make_unique<data::Loader>(dataset, place.sampler, loader_options(config),
                                              place.consumed_samples);
  if (config.data.val_dataset_param && config.training.val_interval > 0)
    data.validation = build_dataset(config, *config.data.val_dataset_param);
  return data;
}

}  // namespace

TrainerParts parts_of_config() {
  TrainerParts parts;
  parts.build_model = build_model;
  parts.make_parallel = make_parallel;
  parts.make_data = make_data;
  return parts;
}

}  // namespace shardloom::trainer
