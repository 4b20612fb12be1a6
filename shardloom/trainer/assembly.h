// Builds what a run consists of from its configuration: model, weights, data. Shared by train and
// check.
#pragma once

#include <memory>

#include "shardloom/config/load.h"
#include "shardloom/data/loader.h"
#include "shardloom/models/model.h"

namespace shardloom::trainer {

// The model of the configuration with uninitialised parameters on `device`. Token
// ids come from the tokenizer of the configuration; a model on the meta device is built without
// one.
std::unique_ptr<models::Model> build_model(const config::TrainConfig& config, at::Device device);

// Random initialisation, or the weights of training.load, else those of model.model_name_or_path.
void fill_weights(const config::TrainConfig& config, models::Model& model);

std::shared_ptr<const data::Dataset> build_dataset(const config::TrainConfig& config,
                                                   const config::DatasetParam& param);

data::SamplerOptions sampler_options(const config::TrainConfig& config, int64_t num_samples);
data::LoaderOptions loader_options(const config::TrainConfig& config);

}  // namespace shardloom::trainer
