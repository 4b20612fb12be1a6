// One training run as plain data: the six sections of the YAML file. Member names are the YAML
// keys; the member initialisers are the defaults. Filled by load_train_config() (config/load.h);
// docs/config.md explains every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardloom::config {

using Patterns = std::vector<std::string>;  // module patterns, see config/pattern.h

// ---- parallel
// ----------------------------------------------------------------------------------------------------

struct TpPlan {
  Patterns colwise_parallel;
  Patterns rowwise_parallel;
  Patterns sequence_parallel;
};

struct FsdpPlan {
  Patterns apply_modules;  // units in prefetch order; the rest belongs to the root unit
  Patterns ignored_modules;
  std::optional<Patterns> hook_modules;
  std::optional<std::string> param_dtype;  // fp16, bf16, fp32, fp64; null keeps the stored type
  std::optional<std::string> reduce_dtype;
  std::optional<std::string> output_dtype;
  bool cast_forward_inputs = true;
  bool reshard_after_forward = true;
  int64_t num_to_forward_prefetch = 0;
  int64_t num_to_backward_prefetch = 0;
  bool pregather = false;
  bool cpu_offload = false;
};

struct EpPlan {
  Patterns apply_modules;
  Patterns apply_efsdp_modules;  // empty: the same as apply_modules
  std::string dispatcher = "alltoall";
  bool use_npu_fused_ops = true;
  std::optional<double> _gradient_divide_factor;
};

struct RecomputePlan {
  Patterns apply_modules;
  bool use_reentrant = false;
  std::optional<Patterns> op_replay_scopes;
};

struct ParallelConfig {
  std::optional<int64_t> data_parallel_size;         // null: world / (tp * ring * ulysses)
  std::optional<int64_t> fully_shard_parallel_size;  // nullopt is the YAML text "auto": world / tp
  int64_t tensor_parallel_size = 1;
  TpPlan tp_plan;
  int64_t ring_attention_size = 1;
  int64_t ulysses_parallel_size = 1;  // context parallelism
  int64_t expert_parallel_size = 1;
  std::optional<int64_t> expert_fully_shard_parallel_size;
  int64_t expert_data_parallel_size = 1;
  bool recompute = false;  // legacy place; features.recompute is the one that counts
  RecomputePlan recompute_plan;
  FsdpPlan fsdp_plan;
  EpPlan ep_plan;
};

// ---- model
// -------------------------------------------------------------------------------------------------------

struct ModelConfig {
  std::string model_id;            // required; key of the model registry
  std::string model_name_or_path;  // required; local folder with config.json, tokenizer and weights
  bool trust_remote_code = false;
  std::string attn_implementation = "flash_attention_2";
  Patterns freeze;
  int64_t mtp_num_layers = 0;
  double mtp_loss_scaling_factor = 0.1;
  std::optional<int64_t> num_hidden_layers;  // null keeps all; a number cuts the language model
  bool random_init = false;
  std::optional<bool> use_grouped_expert_matmul;
  std::optional<bool> skip_flash_attn_recompute;
  std::optional<std::string> gdn_implementation;
};

// ---- data
// --------------------------------------------------------------------------------------------------------

struct BasicParameters {
  std::string dataset_dir = "data";  // image root
  std::vector<std::string> dataset;  // required; JSONL files
  int64_t cutoff_len = 1024;         // sequence length
  std::optional<int64_t> max_samples;
  std::optional<std::string> cache_dir;
  std::optional<std::string> template_;  // YAML key "template"
  std::optional<std::string> chat_template;
  bool enable_thinking = true;
  bool train_on_prompt = false;
  bool mask_history = false;
  bool streaming = false;
  bool overwrite_cache = false;
  int64_t preprocessing_batch_size = 1000;
  std::optional<int64_t> preprocessing_num_workers;
  std::optional<std::string> tool_format;
  std::optional<std::string> val_dataset;
  std::optional<int64_t> val_max_samples;
  std::optional<double> val_rate;
  std::optional<bool> packing;
  bool neat_packing = false;
  bool preprocess_on_fly = false;
  bool async_preprocess = false;
  std::optional<int64_t> async_preprocess_buffer_size;
  std::optional<std::string> stage;
};

struct PreprocessParameters {
  std::optional<std::string>
      model_name_or_path;  // tokenizer folder; null: model.model_name_or_path
  bool use_fast_tokenizer = true;
  bool split_special_tokens = false;
  int64_t image_resolution = 512;
  int64_t video_resolution = 128;
  int64_t image_max_pixels = 768 * 768;
  int64_t image_min_pixels = 32 * 32;
  int64_t video_max_pixels = 256 * 256;
  int64_t video_min_pixels = 16 * 16;
  double video_fps = 2.0;
  int64_t video_maxlen = 128;
  bool image_do_pan_and_scan = false;
  bool crop_to_patches = false;
  bool use_audio_in_video = false;
  int64_t audio_sampling_rate = 16000;
  bool trust_remote_code = false;
};

// Names of the keys and roles in a record.
struct DatasetAttr {
  std::string formatting = "sharegpt";
  std::string messages = "conversations";
  std::string role_tag = "from";
  std::string content_tag = "value";
  std::string user_tag = "human";
  std::string assistant_tag = "gpt";
  std::string observation_tag = "observation";
  std::string function_tag = "function_call";
  std::string system_tag = "system";
  std::optional<std::string> images;  // key of the image paths; null: "image"
  std::optional<std::string> videos;
  std::optional<std::string> audios;
  std::optional<std::string> tools;
  std::optional<std::string> system;  // key of a system text beside the messages
  bool ranking = false;
  std::optional<std::string> chosen;
  std::optional<std::string> rejected;
  std::optional<std::string> prompt;
  std::optional<std::string> query;
  std::optional<std::string> response;
  std::optional<std::string> history;
};

struct DatasetParam {
  std::string dataset_type;  // required; key of the data set registry
  BasicParameters basic_parameters;
  PreprocessParameters preprocess_parameters;
  DatasetAttr attr;
  std::string on_bad_sample = "stop";       // stop | skip
  std::string structural_tokens = "error";  // error | plain
  // dataset_type internvl3_5:
  std::optional<int64_t> image_size;  // null: the model's force_image_size
  int64_t min_dynamic_patch = 1;
  int64_t max_dynamic_patch = 12;
  bool use_thumbnail = true;
  std::string conv_style = "internvl2_5";
  std::string pad_to = "longest";  // longest | cutoff_len
  bool apply_exif_orientation = false;
  bool scale_16bit = false;
  std::optional<std::string> system_message;  // replaces the template's default system text
};

struct CollateParam {
  std::optional<std::string> collator_id;
  std::optional<std::string> model_name;  // older name of collator_id
  bool ignore_pad_token_for_loss = false;
  int64_t pad_to_multiple_of = 8;
};

struct DataloaderParam {
  std::string dataloader_mode = "sampler";
  std::string sampler_type = "BaseRandomBatchSampler";
  bool shuffle = false;
  std::string shuffle_seed = "training";  // training | epoch
  bool drop_last = true;
  bool pin_memory = false;
  int64_t num_workers = 2;
  bool enable_preload = false;
  std::optional<int64_t> prefetch_factor;
  std::optional<bool> persistent_workers;
  bool data_sharding = false;
  CollateParam collate_param;
};

struct DataConfig {
  DatasetParam dataset_param;
  std::optional<DatasetParam> val_dataset_param;
  DataloaderParam dataloader_param;
};

// ---- tools (training.profile is an older place of tools.profile)
// ---------------------------------------------------

struct StaticProfileParam {
  std::string level = "level1";
  bool with_stack = false;
  bool with_memory = false;
  bool record_shapes = false;
  bool with_cpu = false;
  std::string save_path = "./profiling";
  int64_t start_step = 10;
  int64_t end_step = 11;
  bool data_simplification = false;
  std::string aic_metrics_type = "PipeUtilization";
  bool analyse_flag = true;
};

struct ProfileConfig {
  bool enable = false;
  std::string profile_type = "static";
  std::vector<int64_t> ranks = {0};  // [-1] is all
  StaticProfileParam static_param;
};

struct MemoryProfileConfig {
  bool enable = false;
  int64_t start_step = 1;
  int64_t end_step = 2;
  std::string save_path = "./memory_snapshot";
  std::vector<int64_t> dump_ranks = {0};
  std::string stacks = "all";
  std::optional<int64_t> max_entries;
  bool mem_info = false;
};

struct TensorboardConfig {
  bool enable = false;
  std::optional<std::string> dir;
};

struct ToolsConfig {
  ProfileConfig profile;
  MemoryProfileConfig memory_profile;
  TensorboardConfig tensorboard;
};

// ---- training
// ----------------------------------------------------------------------------------------------------

struct LrScale {
  std::string match;
  double scale = 1.0;
};

struct LoraConfig {
  bool enable = false;
  int64_t rank = 8;
  double alpha = 16.0;
  std::vector<std::string> target_modules = {"q_proj", "k_proj", "v_proj"};
  double dropout = 0.0;
  bool init_lora_weights = true;
  std::optional<std::string> pretrained_lora_path;
  std::optional<std::vector<std::string>> lora_target_modules_support;
  bool disable_peft_moe_conversion = true;
};

struct QuantizationPlan {
  std::optional<std::string> recipe_name;
};

struct MetricsConfig {
  bool grad_norm_per_layer = false;
  bool token_stats = false;
  bool token_stats_per_rank = false;
  std::optional<std::vector<int64_t>> token_stats_per_rank_list;
};

struct TrainingConfig {
  int64_t seed = 42;
  std::string device = "auto";  // auto | cpu | cuda | npu
  // Length and batch. resolve_for_world() (config/load.h) fills the ones that are not given.
  int64_t train_iters = 10000;
  std::optional<int64_t> train_epochs;
  int64_t micro_batch_size = 1;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<int64_t> global_batch_size;
  // Learning rate.
  double lr = 5e-5;
  double lr_min = 0.0;
  double lr_start = 0.0;
  std::string lr_decay_style = "constant";  // constant | linear | cosine
  double lr_decay_ratio = 1.0;
  double lr_warmup_ratio = 0.0;
  std::optional<int64_t> lr_warmup_iters;  // instead of the ratio
  std::optional<std::vector<LrScale>> lr_scaling_plan;
  // Optimizer.
  std::string optimizer = "adamw";
  double weight_decay = 0.0;
  Patterns no_decay_modules;
  std::vector<std::string> no_decay_params;
  bool adam_fused = true;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double mem_fraction_static = 0.8;
  double matched_adamw_rms = 0.2;
  double muon_momentum = 0.95;
  int64_t ns_steps = 5;
  double clip_grad = 1.0;  // 0: the norm is logged, nothing is clipped
  bool clip_grad_foreach = true;
  std::string on_nan = "stop";  // stop | skip a step whose loss or gradient norm is not finite
  // Determinism and set-up.
  bool use_deter_comp = false;
  std::optional<bool> allow_hf32;
  bool init_model_with_meta_device = false;
  // Loading and saving.
  std::optional<std::string> load;
  std::string load_format = "auto";  // auto | hf | dcp
  bool load_strict = true;
  bool load_rank0_and_broadcast = false;
  bool no_load_optim = false;
  bool no_load_rng = false;
  std::optional<std::string> save;
  std::string save_format = "auto";
  std::string save_hf_layout = "auto";  // auto | remote_code | hf
  bool save_async = false;
  std::optional<std::string> save_ckpt_dtype;
  int64_t save_interval = 0;  // 0: only at the end
  int64_t keep_last = 0;      // 0: all
  bool no_save_optim = false;
  bool no_save_rng = false;
  // Logging and validation.
  int64_t log_interval = 1;
  std::optional<std::string> metrics_dir;
  int64_t val_interval = 0;
  std::optional<int64_t> val_micro_batch_size;
  int64_t manual_gc_interval = 0;
  MetricsConfig metrics;
  // Extensions.
  std::vector<std::string> plugin;
  ProfileConfig profile;
  LoraConfig lora;
  QuantizationPlan quantization_plan;
  // Unused by the reference as well.
  std::optional<bool> enable_full_determinism;
  std::optional<std::string> ckpt_manager;
  std::optional<std::string> load_checkpoint_path;
  std::optional<int64_t> save_steps;
  std::optional<int64_t> max_steps;
};

// ---- features
// ----------------------------------------------------------------------------------------------------

struct LossCfg {
  std::string loss_type = "raw";  // raw | default | per_sample_loss | per_token_loss | square_loss
  double router_aux_loss_coef = 0.0;
  bool router_aux_loss_offload = false;
};

struct ChunklossPlan {
  std::string apply_module = "lm_head";
  int64_t chunk_size = 1024;
  int64_t total_chunk_size = 4096;
  std::string impl_type = "legacy";
  int64_t vocab_tile_size = 4096;
};

struct ActivationOffloadPlan {
  std::optional<Patterns> apply_modules;
  std::string impl = "legacy";
};

struct ChunkmbsPlan {
  std::optional<Patterns> apply_modules;
  int64_t chunk_mbs = 1;
  int64_t batch_dim = 0;
  std::vector<int64_t> chunk_arg_indexs = {0};
  std::vector<std::string> chunk_kwarg_names;
};

struct EpBalancePlan {
  int64_t max_dup_experts_num = 2;
};

struct SwapPlan {
  int64_t capacity_mb = 1024;
  double keep_rate = 0.0;
  bool enable_prefetch = true;
  int64_t cpu_arena_slab_size_mb = 2048;
  std::string cpu_arena_pool_policy = "standard";
  bool pin_memory = true;
  std::string eviction_policy = "fifo";
};

struct FeaturesConfig {
  LossCfg loss_cfg;
  bool recompute = false;
  RecomputePlan recompute_plan;
  bool enable_chunk_loss = false;
  bool enable_dynamic_chunk_loss = false;
  ChunklossPlan chunkloss_plan;
  bool enable_activation_offload = false;
  ActivationOffloadPlan activation_offload_plan;
  SwapPlan swap_plan;
  bool enable_chunk_mbs = false;
  ChunkmbsPlan chunkmbs_plan;
  bool enable_ep_balance = false;
  EpBalancePlan ep_balance_plan;
  bool skip_moe_pad_tokens = false;
};

struct TrainConfig {
  ParallelConfig parallel;
  ModelConfig model;
  DataConfig data;
  FeaturesConfig features;
  TrainingConfig training;
  ToolsConfig tools;
};

}  // namespace shardloom::config
