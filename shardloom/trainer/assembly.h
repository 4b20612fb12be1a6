// Builds what a run consists of from its configuration: model, weights, data. Shared by train and
// check.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "shardloom/config/load.h"
#include "shardloom/data/loader.h"
#include "shardloom/distributed/sharded_tensor.h"
#include "shardloom/models/model.h"

namespace shardloom::trainer {

// Whether the tokenizer's ids are needed; without them a model can be looked at, but not run.
enum class TokenIds { kNone, kFromTokenizer };

// The model of the configuration on the meta device.
std::unique_ptr<models::Model> build_model(const config::TrainConfig& config, TokenIds token_ids);

// How the files of each layout store the model's parameters; asked before they are sharded.
using WeightSources = std::map<nn::Layout, std::vector<nn::WeightSource>>;
WeightSources weight_sources(const models::Model& model);

// Random initialisation, which does not depend on how the parameters are cut.
void init_random(const models::Model& model,
                 const std::vector<distributed::ShardedTensor>& parameters);

// The weights of a Hugging Face folder. Every rank fills its own rows.
void load_hf_weights(const std::filesystem::path& folder,
                     const config::TrainingConfig& training,
                     const models::Model& model,
                     const WeightSources& sources,
                     const std::vector<distributed::ShardedTensor>& parameters,
                     bool verbose);

std::shared_ptr<const data::Dataset> build_dataset(const config::TrainConfig& config,
                                                   const config::DatasetParam& param);

// Folders that are written to much later are made now, so that no run ends in vain. Throws
// ConfigError.
void prepare_folders(const config::TrainingConfig& training);

// train_iters, or those of train_epochs. Throws DataError when an epoch has no whole global batch.
int64_t training_steps(const config::TrainingConfig& training, int64_t num_samples);

data::SamplerOptions sampler_options(const config::TrainConfig& config,
                                     int64_t num_samples,
                                     const distributed::Group& data_parallel);
data::LoaderOptions loader_options(const config::TrainConfig& config);
data::OnBadSample on_bad_sample(const config::DatasetParam& dataset);

}  // namespace shardloom::trainer
