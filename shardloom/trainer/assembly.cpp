#include "shardloom/trainer/assembly.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/tokenizer/tokenizer.h"

namespace shardloom::trainer {

namespace {

// Looks a token up in the tokenizer of the data, which is read at the first question: models of
// plug-ins may do without one.
std::function<std::optional<int64_t>(const std::string&)> token_id_of(
    const config::TrainConfig& config) {
  const std::string folder =
      config.data.dataset_param.preprocess_parameters.model_name_or_path.value_or(
          config.model.model_name_or_path);
  return [folder, tokenizer = std::shared_ptr<tokenizer::Tokenizer>()](
             const std::string& token) mutable -> std::optional<int64_t> {
    if (!tokenizer)
      tokenizer = std::make_shared<tokenizer::Tokenizer>(tokenizer::Tokenizer::from_folder(folder));
    const auto id = tokenizer->id(token);
    return id ? std::optional<int64_t>(*id) : std::nullopt;
  };
}
}  // namespace

std::unique_ptr<models::Model> build_model(const config::TrainConfig& config, TokenIds token_ids) {
  models::BuildOptions options;
  options.folder = config.model.model_name_or_path;
  options.num_hidden_layers = config.model.num_hidden_layers;
  options.keep_router_logits = config.features.loss_cfg.router_aux_loss_coef > 0;
  options.tensor_options = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  if (token_ids == TokenIds::kFromTokenizer) options.token_id = token_id_of(config);
  return models::model_registry().get(config.model.model_id)(options);
}

WeightSources weight_sources(const models::Model& model) {
  WeightSources sources;
  for (const nn::Layout layout : nn::kAllLayouts)
    sources.emplace(layout, model.weight_sources(layout));
  return sources;
}

// One whole parameter at a time, so that the values are those of an unsharded model.
void init_random(const models::Model& model,
                 const std::vector<distributed::ShardedTensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& p : parameters) {
    const at::Tensor whole = at::empty(p.shape, at::TensorOptions().dtype(p.local.scalar_type()));
    model.init_parameter(p.name, whole);
    p.local.copy_(whole.narrow(0, p.first_row, p.local.size(0)));
  }
}

void load_hf_weights(const std::filesystem::path& folder,
                     const config::TrainingConfig& training,
                     const models::Model& model,
                     const WeightSources& sources,
                     const std::vector<distributed::ShardedTensor>& parameters,
                     bool verbose) {
  checkpoint::HfLoadOptions options;
  options.strict = training.load_strict;
  options.verbose = verbose;
  options.may_ignore = [&model](const std::string& key) { return model.may_ignore(key); };
  log::info("weights: {}", folder.string());
  checkpoint::load_hf_weights(
      checkpoint::HfFolder::open(folder), [&](nn::Layout l) { return sources.at(l); }, parameters,
      options);
}

std::shared_ptr<const data::Dataset> build_dataset(const config::TrainConfig& config,
                                                   const config::DatasetParam& param) {
  const auto& factory = data::dataset_registry().get(param.dataset_type);
  auto dataset = factory(param, config.model.model_name_or_path);
  if (dataset->size() == 0)
    throw DataError("{}: the data set has no samples", join(param.basic_parameters.dataset, ", "));
  return dataset;
}

data::SamplerOptions sampler_options(const config::TrainConfig& config,
                                     int64_t num_samples,
                                     const distributed::Group& data_parallel) {
  data::SamplerOptions options;
  options.dp_rank = data_parallel.rank();
  options.dp_size = data_parallel.size();
  options.num_samples = num_samples;
  options.micro_batch_size = config.training.micro_batch_size;
  options.shuffle = config.data.dataloader_param.shuffle;
  options.seed_by_epoch_only = config.data.dataloader_param.shuffle_seed == "epoch";
  options.seed = static_cast<uint64_t>(config.training.seed);
  return options;
}

void prepare_folders(const config::TrainingConfig& training) {
  for (const auto& [key, folder] : {std::pair("training.save", training.save),
                                    std::pair("training.metrics_dir", training.metrics_dir)}) {
    if (!folder) continue;
    std::error_code error;
    std::filesystem::create_directories(*folder, error);
    if (error || ::access(folder->c_str(), W_OK) != 0) {
      throw ConfigError("{}: cannot write to {}: {}", key, *folder,
                        error ? error.message() : std::strerror(errno));
    }
  }
}

int64_t training_steps(const config::TrainingConfig& training, int64_t num_samples) {
  if (!training.train_epochs) return training.train_iters;
  const int64_t batch = training.global_batch_size.value_or(1);
  if (num_samples < batch) {
    throw DataError(
        "{} samples are fewer than the {} of a global batch, so that train_epochs gives no step; "
        "use more data, a smaller global batch, or train_iters",
        num_samples, batch);
  }
  return *training.train_epochs * (num_samples / batch);
}

data::LoaderOptions loader_options(const config::TrainConfig& config) {
  data::LoaderOptions options;
  options.num_workers = static_cast<int>(config.data.dataloader_param.num_workers);
  options.prefetch_factor =
      static_cast<int>(config.data.dataloader_param.prefetch_factor.value_or(2));
  options.on_bad_sample = on_bad_sample(config.data.dataset_param);
  return options;
}

data::OnBadSample on_bad_sample(const config::DatasetParam& dataset) {
  return dataset.on_bad_sample == "skip" ? data::OnBadSample::kSkip : data::OnBadSample::kStop;
}

}  // namespace shardloom::trainer
