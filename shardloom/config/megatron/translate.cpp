#include "shardloom/config/megatron/translate.h"

#include <fmt/format.h>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/megatron/document.h"
#include "shardloom/config/megatron/picture_pipeline.h"
#include "shardloom/config/megatron/rules.h"
#include "shardloom/config/megatron/source_map.h"
#include "shardloom/config/megatron/terms.h"
#include "shardloom/config/validate.h"

namespace shardloom::config::megatron {
namespace {

constexpr const char* kInternVl = "internvl3_5";

void translate_parallel(const MegatronConfig& from, TrainConfig& to) {
  const Fsdp2Config& fsdp2 = from.fsdp2;
  ParallelConfig& parallel = to.parallel;
  parallel.fully_shard_parallel_size = fsdp2.sharding_size;
  parallel.ulysses_parallel_size = from.args.context_parallel_size;
  parallel.expert_parallel_size = fsdp2.expert_parallel_size;
  if (fsdp2.expert_parallel_size > 1 && !fsdp2.reshard_local_experts)
    parallel.expert_fully_shard_parallel_size = 1;
  parallel.ep_plan.apply_modules = fsdp2.moe_modules;

  FsdpPlan& plan = parallel.fsdp_plan;
  plan.apply_modules = fsdp2.sub_modules_to_wrap;
  plan.ignored_modules = fsdp2.ignored_modules;
  plan.param_dtype = fsdp2.param_dtype;
  plan.reduce_dtype = fsdp2.reduce_dtype;
  plan.output_dtype = fsdp2.output_dtype;
  plan.cast_forward_inputs = fsdp2.cast_forward_inputs;
  plan.reshard_after_forward = fsdp2.reshard_after_forward;
  plan.num_to_forward_prefetch = fsdp2.num_to_forward_prefetch;
  plan.num_to_backward_prefetch = fsdp2.num_to_backward_prefetch;
  plan.cpu_offload = fsdp2.offload_to_cpu;
}

void translate_model(const ModelJson& from, const Arguments& args, ModelConfig& to) {
  to.model_id = from.model_id == "internvl" ? kInternVl : from.model_id;
  to.model_name_or_path = from.init_from_hf_path;
  to.trust_remote_code = from.trust_remote_code;
  if (from.attn_implementation) to.attn_implementation = *from.attn_implementation;
  to.freeze = from.freeze;
  to.num_hidden_layers = from.num_hidden_layers;
  to.random_init = from.random_init && !args.load;
}

std::string loss_type(const Arguments& args, const ModelLossCfg& cfg) {
  if (args.calculate_per_sample_loss) return "per_sample_loss";
  if (args.calculate_per_token_loss) return "per_token_loss";
  // Both are the mean over all targets, where denominators are those of the global batch.
  return cfg.loss_type == "token_loss" ? "per_token_loss" : cfg.loss_type;
}

void translate_features(const MegatronConfig& from, TrainConfig& to) {
  FeaturesConfig& features = to.features;
  features.recompute = !from.fsdp2.recompute_modules.empty();
  features.recompute_plan.apply_modules = from.fsdp2.recompute_modules;
  features.recompute_plan.use_reentrant = from.fsdp2.use_reentrant;

  const ModelLossCfg& cfg = from.model.loss_cfg;
  features.loss_cfg.loss_type = loss_type(from.args, cfg);
  features.loss_cfg.router_aux_loss_coef = cfg.router_aux_loss_coef;
  const bool dynamic = cfg.compute_mode == "dynamic_chunk";
  features.enable_chunk_loss = dynamic || cfg.compute_mode == "chunk";
  features.enable_dynamic_chunk_loss = dynamic;
  ChunklossPlan& plan = features.chunkloss_plan;
  if (cfg.chunk_size) (dynamic ? plan.total_chunk_size : plan.chunk_size) = *cfg.chunk_size;
  const bool internvl = to.model.model_id == kInternVl;
  plan.apply_module = cfg.apply_module.value_or(internvl ? "language_model.lm_head" : "lm_head");
}

void translate_data(const MegatronConfig& from, DataConfig& to) {
  const MmDatasetParam& dataset = from.data.dataset_param;
  DatasetParam& param = to.dataset_param;
  param.dataset_type = dataset.dataset_type == "multimodal" ? kInternVl : dataset.dataset_type;
  const DataSource& first = dataset.basic_parameters.front();
  param.basic_parameters.dataset = {first.data_path};
  param.basic_parameters.dataset_dir = first.data_folder.empty() ? "." : first.data_folder;
  param.basic_parameters.cutoff_len = from.args.seq_length;
  param.preprocess_parameters.model_name_or_path = dataset.tokenizer_config.from_pretrained;
  param.conv_style = dataset.template_name;
  param.image_size = tile_size(dataset);
  param.pad_to = dataset.group_by_length ? "longest" : "cutoff_len";
  param.min_dynamic_patch = dataset.dynamic_image_size ? dataset.min_dynamic_patch : 1;
  param.max_dynamic_patch = dataset.dynamic_image_size ? dataset.max_dynamic_patch : 1;
  param.use_thumbnail = dataset.use_thumbnail;
  param.on_bad_sample = dataset.on_bad_sample;

  const MmDataloaderParam& given = from.data.dataloader_param;
  DataloaderParam& loader = to.dataloader_param;
  loader.dataloader_mode = given.dataloader_mode;
  loader.sampler_type = given.sampler_type;
  loader.shuffle = given.shuffle;
  loader.shuffle_seed = given.shuffle_seed;
  loader.drop_last = given.drop_last;
  loader.pin_memory = given.pin_memory;
  const bool flag_given = from.args.sources.contains("num_workers");
  loader.num_workers =
      flag_given ? from.args.num_workers : given.num_workers.value_or(from.args.num_workers);
}

void translate_rate(const Arguments& args, TrainingConfig& to) {
  to.lr = args.lr;
  to.lr_min = args.min_lr;
  to.lr_start = args.lr_warmup_init;
  to.lr_decay_style = args.lr_decay_style;
  const int64_t decay_iters = args.lr_decay_iters.value_or(args.train_iters);
  to.lr_decay_ratio = share_of(decay_iters, args.train_iters);
  if (args.sources.contains("lr_warmup_iters")) to.lr_warmup_iters = args.lr_warmup_iters;
  if (!args.lr_warmup_fraction) return;
  to.lr_warmup_ratio = decay_iters == args.train_iters
                           ? *args.lr_warmup_fraction
                           : share_of(static_cast<int64_t>(*args.lr_warmup_fraction *
                                                           static_cast<double>(decay_iters)),
                                      args.train_iters);
}

void translate_training(const Arguments& args, TrainingConfig& to) {
  translate_rate(args, to);
  to.seed = args.seed;
  to.train_iters = args.train_iters;
  to.micro_batch_size = args.micro_batch_size;
  to.global_batch_size = args.global_batch_size;
  to.weight_decay = args.weight_decay;
  to.adam_beta1 = args.adam_beta1;
  to.adam_beta2 = args.adam_beta2;
  to.adam_eps = args.adam_eps;
  to.clip_grad = args.clip_grad;
  to.on_nan = args.on_nan;
  to.init_model_with_meta_device = args.init_model_with_meta_device;
  to.load = args.load;
  to.load_strict = !args.no_load_strict;
  to.no_load_optim = args.no_load_optim;
  to.no_load_rng = args.no_load_rng;
  to.save = args.save;
  to.save_format = "dcp";
  to.save_interval = args.save_interval.value_or(0);
  to.save_async = args.async_save;
  to.no_save_optim = args.no_save_optim;
  to.no_save_rng = args.no_save_rng;
  to.keep_last = args.keep_last;
  to.val_interval = args.eval_interval;
  to.log_interval = args.log_interval;
  to.metrics_dir = args.metrics_dir;
}

// Runs `read` and keeps the text of its error.
template <typename Function>
void collect(std::vector<std::string>& faults, Function&& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    faults.emplace_back(error.what());
  }
}

void read_files(MegatronConfig& config) {
  std::vector<std::string> faults;
  const Arguments& args = config.args;
  collect(faults, [&] { config.fsdp2 = load_fsdp2_config(args.fsdp2_config_path); });
  collect(faults, [&] { config.model = load_model_json(args.mm_model); });
  collect(faults, [&] { config.data = load_data_json(args.mm_data); });
  if (!faults.empty()) throw ConfigError("{}", join(faults, "\n"));
}

}  // namespace

MegatronConfig load_megatron_config(const std::vector<std::string>& args) {
  MegatronConfig config;
  config.args = parse_arguments(args);
  if (config.args.help || config.args.reference) return config;
  read_files(config);

  TrainConfig& to = config.loaded.config;
  translate_parallel(config, to);
  translate_model(config.model, config.args, to.model);
  translate_features(config, to);
  translate_data(config, to.data);
  translate_training(config.args, to.training);
  fill_sources(config);

  Problems problems;
  check_rules(config, problems);
  validate(config.loaded, FeatureCheck::kBuilt, problems);
  if (!problems.ok()) throw ConfigError("{}", join(in_own_terms(problems.errors(), config), "\n"));
  config.loaded.warnings = in_own_terms(problems.warnings(), config);
  return config;
}

}  // namespace shardloom::config::megatron
