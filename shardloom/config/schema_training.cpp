// The tables of the section training, and the root.
#include "shardloom/config/schema_builder.h"

namespace shardloom::config {
namespace {

// Limits that keep products of three sizes within 64 bits.
Rule batch_size() { return between(1, 1'000'000); }

SectionBuilder<TrainingConfig> length_and_rate() {
  using T = TrainingConfig;
  return SectionBuilder<T>()
      .add("seed", &T::seed, "Seed of everything random.", between(0, 9007199254740992.0))
      .add("device", &T::device, "Where to compute; auto takes the best there is.",
           one_of({"auto", "cpu", "cuda", "npu"}, {{"gpu", "did you mean cuda?"}}))
      .add("train_iters", &T::train_iters, "Optimizer steps; 0 trains nothing.", between(0, 1e12))
      .add("train_epochs", &T::train_epochs, "Passes over the data, instead of train_iters.",
           at_least(1))
      .add("micro_batch_size", &T::micro_batch_size,
           "Samples of one forward on one data-parallel rank.", batch_size())
      .add("gradient_accumulation_steps", &T::gradient_accumulation_steps,
           "Micro-batches per optimizer step; null is 1, or what global_batch_size needs.",
           batch_size())
      .add("global_batch_size", &T::global_batch_size,
           "Samples per optimizer step. If given, it must equal micro_batch_size x data-parallel "
           "size x "
           "gradient_accumulation_steps, or fills in the one that is not given.",
           batch_size())
      .add("lr", &T::lr, "Peak learning rate.", at_least(0))
      .add("lr_min", &T::lr_min, "Learning rate after the decay (cosine).", at_least(0))
      .add("lr_start", &T::lr_start, "Learning rate of the first step of the warm-up.", at_least(0))
      .add("lr_decay_style", &T::lr_decay_style, "Shape after the warm-up.",
           one_of({"constant", "linear", "cosine"}))
      .add("lr_decay_ratio", &T::lr_decay_ratio, "The decay ends after this share of train_iters.",
           at_least(0))
      .add("lr_warmup_ratio", &T::lr_warmup_ratio, "Share of train_iters that is warm-up.",
           between(0, 1))
      .add("lr_warmup_iters", &T::lr_warmup_iters, "Steps of warm-up, instead of lr_warmup_ratio.",
           at_least(0))
      .add("lr_scaling_plan", &T::lr_scaling_plan,
           "Factors on the learning rate of some parameters.");
}

void add_optimizer(SectionBuilder<TrainingConfig>& section) {
  using T = TrainingConfig;
  section.add("optimizer", &T::optimizer, "Optimizer.", one_of({"adamw", "adamw_swap", "muon"}))
      .add("weight_decay", &T::weight_decay, "Decoupled weight decay, on all trained parameters.",
           at_least(0))
      .add("no_decay_modules", &T::no_decay_modules, "Modules without weight decay.")
      .add("no_decay_params", &T::no_decay_params, "Parameters without weight decay.")
      .add("adam_beta1", &T::adam_beta1, "Decay of the first moment.", between_half_open(0, 1))
      .add("adam_beta2", &T::adam_beta2, "Decay of the second moment.", between_half_open(0, 1))
      .add("adam_eps", &T::adam_eps, "Added to the denominator.", at_least(0))
      .add_without_effect("adam_fused", &T::adam_fused, "The fused update is always used.")
      .add("mem_fraction_static", &T::mem_fraction_static,
           "Share of free memory for the swapped state (adamw_swap).",
           Rule{.min = 0.0, .max = 1.0, .above_min = true})
      .add("matched_adamw_rms", &T::matched_adamw_rms, "Update size that muon is matched to.",
           above(0))
      .add("muon_momentum", &T::muon_momentum, "Momentum of muon.", between_half_open(0, 1))
      .add("ns_steps", &T::ns_steps, "Newton-Schulz steps of muon.", at_least(1))
      .add("clip_grad", &T::clip_grad, "Largest gradient norm; 0 only logs the norm.", at_least(0))
      .add_without_effect("clip_grad_foreach", &T::clip_grad_foreach, "Same result either way.")
      .add("on_nan", &T::on_nan,
           "A step whose loss or gradient norm is not finite stops the run, or is left out.",
           one_of({"stop", "skip"}))
      .add_without_effect("use_deter_comp", &T::use_deter_comp,
                          "CPU results are always the same bits.")
      .add_without_effect("allow_hf32", &T::allow_hf32,
                          "Reduced-precision matrix products of an NPU.")
      .add_without_effect("init_model_with_meta_device", &T::init_model_with_meta_device,
                          "Weights that are loaded are never initialised first.");
}

void add_checkpoints(SectionBuilder<TrainingConfig>& section) {
  using T = TrainingConfig;
  const std::vector<std::string> formats = {"auto", "hf", "dcp"};
  section
      .add("load", &T::load,
           "Folder of the weights, or of a run to resume (docs/checkpoints.md); null is "
           "model.model_name_or_path.",
           non_empty())
      .add("load_format", &T::load_format, "Format of that folder; auto looks inside.",
           one_of(formats))
      .add("load_strict", &T::load_strict, "Missing and unexpected tensors are errors.")
      .add("load_rank0_and_broadcast", &T::load_rank0_and_broadcast,
           "Rank 0 reads, the others receive.")
      .add("no_load_optim", &T::no_load_optim, "Start with a fresh optimizer.")
      .add("no_load_rng", &T::no_load_rng, "Do not restore random generators.")
      .add("save", &T::save, "Folder of the checkpoints; null saves nothing.", non_empty())
      .add("save_format", &T::save_format,
           "Format of the checkpoints. auto: dcp, from which a run can be resumed; the format that "
           "was loaded when no_save_optim and no_save_rng are both true.",
           one_of(formats))
      .add("save_hf_layout", &T::save_hf_layout,
           "Names and config.json of Hugging Face checkpoints: remote_code (InternVLChatModel), hf "
           "(transformers, the -HF folders), or auto: as the model folder.",
           one_of({"auto", "remote_code", "hf"}))
      .add("save_async", &T::save_async, "Write while training goes on.")
      .add("save_ckpt_dtype", &T::save_ckpt_dtype, "Type of the saved weights; null keeps fp32.",
           one_of({"fp32", "fp16", "bf16"}))
      .add("save_interval", &T::save_interval,
           "Steps between checkpoints; 0 saves only at the end.", at_least(0))
      .add("keep_last", &T::keep_last,
           "Checkpoints that stay when a new one is in place, itself counted; 0 keeps all.",
           at_least(0))
      .add("no_save_optim", &T::no_save_optim, "Leave the optimizer state out.")
      .add("no_save_rng", &T::no_save_rng, "Leave random generators out.");
}

void add_logging(SectionBuilder<TrainingConfig>& section) {
  using T = TrainingConfig;
  section.add("log_interval", &T::log_interval, "Steps between log lines.", at_least(1))
      .add("metrics_dir", &T::metrics_dir,
           "Folder for metrics.jsonl and TensorBoard events; null writes none.", non_empty())
      .add("metrics", &T::metrics, "Further figures.")
      .add("val_interval", &T::val_interval, "Steps between validations; 0 is never.", at_least(0))
      .add("val_micro_batch_size", &T::val_micro_batch_size, "Micro-batch of the validation.",
           batch_size())
      .add_without_effect("manual_gc_interval", &T::manual_gc_interval,
                          "There is no garbage collector.", at_least(0));
}

void add_extensions(SectionBuilder<TrainingConfig>& section) {
  using T = TrainingConfig;
  section
      .add("plugin", &T::plugin,
           "Shared libraries with models and data sets. The package paths of the built-in ones, "
           "such as "
           "mindspeed_mm/fsdp/models/internvl3_5, are accepted and load nothing.",
           non_empty())
      .add("lora", &T::lora, "Low-rank adapters.")
      .add("quantization_plan", &T::quantization_plan, "Quantised training.")
      .add_unused("profile", &T::profile, "Older place of tools.profile.")
      .add_unused("enable_full_determinism", &T::enable_full_determinism, "See use_deter_comp.")
      .add_unused("ckpt_manager", &T::ckpt_manager, "See save_format.")
      .add_unused("load_checkpoint_path", &T::load_checkpoint_path, "See load.")
      .add_unused("save_steps", &T::save_steps, "See save_interval.")
      .add_unused("max_steps", &T::max_steps, "See train_iters.");
}

}  // namespace

template <>
const Section& section_of<LrScale>() {
  static const Section section =
      SectionBuilder<LrScale>()
          .add("match", &LrScale::match, "Regular expression on parameter names.", required())
          .add("scale", &LrScale::scale, "Factor.", at_least(0));
  return section;
}

template <>
const Section& section_of<LoraConfig>() {
  using T = LoraConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("enable", &T::enable, "Train low-rank adapters only.")
          .add("rank", &T::rank, "Rank.", at_least(1))
          .add("alpha", &T::alpha, "Scale times rank.", above(0))
          .add("target_modules", &T::target_modules, "Layers that get adapters.")
          .add("dropout", &T::dropout, "Dropout before the adapter.", between_half_open(0, 1))
          .add("init_lora_weights", &T::init_lora_weights, "Start adapters at zero.")
          .add("pretrained_lora_path", &T::pretrained_lora_path, "Adapters to start from.")
          .add("lora_target_modules_support", &T::lora_target_modules_support,
               "Layers that may get adapters.")
          .add("disable_peft_moe_conversion", &T::disable_peft_moe_conversion,
               "Leave fused experts alone.");
  return section;
}

template <>
const Section& section_of<QuantizationPlan>() {
  static const Section section = SectionBuilder<QuantizationPlan>().add(
      "recipe_name", &QuantizationPlan::recipe_name, "Recipe.");
  return section;
}

template <>
const Section& section_of<MetricsConfig>() {
  using T = MetricsConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("grad_norm_per_layer", &T::grad_norm_per_layer, "Gradient norm of each layer.")
          .add("token_stats", &T::token_stats, "Token counts.")
          .add("token_stats_per_rank", &T::token_stats_per_rank, "Token counts of each rank.")
          .add("token_stats_per_rank_list", &T::token_stats_per_rank_list, "The ranks.",
               at_least(0));
  return section;
}

template <>
const Section& section_of<TrainingConfig>() {
  static const Section section = [] {
    SectionBuilder<TrainingConfig> builder = length_and_rate();
    add_optimizer(builder);
    add_checkpoints(builder);
    add_logging(builder);
    add_extensions(builder);
    return builder;
  }();
  return section;
}

template <>
const Section& section_of<TrainConfig>() {
  using T = TrainConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("parallel", &T::parallel, "Sizes and plans of parallelism.")
          .add("model", &T::model, "The model.")
          .add("data", &T::data, "The data.")
          .add("features", &T::features, "The loss, and what trades time for memory.")
          .add("training", &T::training, "Length, optimizer, checkpoints, logs.")
          .add("tools", &T::tools, "Profiling.");
  return section;
}

const Section& train_config_section() { return section_of<TrainConfig>(); }

}  // namespace shardloom::config
