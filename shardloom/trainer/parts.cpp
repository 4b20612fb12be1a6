#include "shardloom/trainer/parts.h"

namespace shardloom::trainer {
namespace {

RunData make_data(const config::TrainConfig& config, const TrainerParts::PlaceOf& place_of) {
  RunData data;
  data.train = make_loader(config, build_dataset(config, config.data.dataset_param), place_of);
  if (config.data.val_dataset_param && config.training.val_interval > 0)
    data.validation = build_dataset(config, *config.data.val_dataset_param);
  return data;
}

}  // namespace

std::unique_ptr<data::Loader> make_loader(const config::TrainConfig& config,
                                          std::shared_ptr<const data::Dataset> dataset,
                                          const TrainerParts::PlaceOf& place_of) {
  const LoaderPlace place = place_of(*dataset);
  return std::make_unique<data::Loader>(std::move(dataset), place.sampler, loader_options(config),
                                        place.consumed_samples);
}

TrainerParts parts_of_config() {
  TrainerParts parts;
  parts.build_model = build_model;
  parts.make_parallel = make_parallel;
  parts.make_data = make_data;
  parts.data_is_of_config = true;
  return parts;
}

}  // namespace shardloom::trainer
