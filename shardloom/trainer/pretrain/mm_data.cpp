#include "shardloom/trainer/pretrain/mm_data.h"

#include <cmath>

#include "shardloom/data/datasets/concat.h"
#include "shardloom/trainer/assembly.h"

namespace shardloom {

std::shared_ptr<const data::Dataset> build_mm_dataset(const PretrainArgs& args) {
  const auto& sources = args.data.dataset_param.basic_parameters;
  std::vector<data::ConcatDataset::Part> parts;
  for (const auto& source : sources) {
    config::DatasetParam param = args.loaded.config.data.dataset_param;
    param.basic_parameters.dataset = {source.data_path};
    param.basic_parameters.dataset_dir = source.data_folder;
    auto dataset = trainer::build_dataset(args.loaded.config, param);
    const auto size =
        static_cast<int64_t>(std::floor(static_cast<double>(dataset->size()) * source.repeat_time));
    parts.push_back({std::move(dataset), size});
  }
  if (parts.size() == 1 && parts[0].size == parts[0].dataset->size()) return parts[0].dataset;
  return std::make_shared<data::ConcatDataset>(std::move(parts));
}

std::unique_ptr<data::Loader> build_mm_dataloader(std::shared_ptr<const data::Dataset> dataset,
                                                  const PretrainArgs& args,
                                                  const DataContext& context) {
  return trainer::make_loader(args.loaded.config, std::move(dataset), context.place_of);
}

}  // namespace shardloom
