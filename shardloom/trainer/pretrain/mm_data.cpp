#include "shardloom/trainer/pretrain/mm_data.h"

#include <cmath>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/places.h"
#include "shardloom/data/datasets/concat.h"
#include "shardloom/trainer/assembly.h"

namespace shardloom {
namespace {

config::Place place_of(const PretrainArgs& args, const std::string& key) {
  return config::place_in(args.data.sources, "dataset_param." + key);
}

void check_type(const PretrainArgs& args) {
  const auto& registry = data::dataset_registry();
  if (registry.find(args.loaded.config.data.dataset_param.dataset_type) != nullptr) return;
  const std::string& type = args.data.dataset_param.dataset_type;
  throw ConfigError("{}: dataset_param.dataset_type \"{}\" is not known{}; known: multimodal, {}",
                    place_of(args, "dataset_type").str(), type,
                    did_you_mean(type, registry.names()), join(registry.names(), ", "));
}

data::ConcatDataset::Part build_part(const PretrainArgs& args, size_t index) {
  const auto& sources = args.data.dataset_param.basic_parameters;
  const config::megatron::DataSource& source = sources[index];
  config::DatasetParam param = args.loaded.config.data.dataset_param;
  param.basic_parameters.dataset = {source.data_path};
  param.basic_parameters.dataset_dir = source.data_folder;
  auto dataset = trainer::build_dataset(args.loaded.config, param);
  const auto size =
      static_cast<int64_t>(std::floor(static_cast<double>(dataset->size()) * source.repeat_time));
  if (size == 0) {
    const std::string entry = sources.size() == 1
                                  ? "basic_parameters.repeat_time"
                                  : fmt::format("basic_parameters[{}].repeat_time", index);
    throw ConfigError("{}: repeat_time {} leaves none of the {} samples of {}",
                      place_of(args, entry).str(), source.repeat_time, dataset->size(),
                      source.data_path);
  }
  return {std::move(dataset), size};
}

}  // namespace

std::shared_ptr<const data::Dataset> build_mm_dataset(const PretrainArgs& args) {
  check_type(args);
  std::vector<data::ConcatDataset::Part> parts;
  for (size_t i = 0; i < args.data.dataset_param.basic_parameters.size(); ++i)
    parts.push_back(build_part(args, i));
  if (parts.size() == 1 && parts[0].size == parts[0].dataset->size()) return parts[0].dataset;
  return std::make_shared<data::ConcatDataset>(std::move(parts));
}

std::unique_ptr<data::Loader> build_mm_dataloader(std::shared_ptr<const data::Dataset> dataset,
                                                  const PretrainArgs& args,
                                                  const DataContext& context) {
  return trainer::make_loader(args.loaded.config, std::move(dataset), context.place_of);
}

}  // namespace shardloom
