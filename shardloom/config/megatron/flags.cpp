#include "shardloom/config/megatron/flags.h"

#include <algorithm>

namespace shardloom::config::megatron {
namespace {

using A = Arguments;

Rule required_number(Rule rule) {
  rule.required = true;
  return rule;
}

FlagGroup inputs() {
  return FlagGroup("Inputs")
      .add("use_torch_fsdp2", &A::use_torch_fsdp2, "",
           "Train with fully_shard; the one mode there is. Required.")
      .add("fsdp2_config_path", &A::fsdp2_config_path, "", "fsdp2_config.yaml.", required())
      .add("mm_model", &A::mm_model, "", "model.json.", required())
      .add("mm_data", &A::mm_data, "", "data.json.", required())
      .add("mm_tool", &A::mm_tool, "", "tools.json; accepted without effect and not read.",
           non_empty());
}

FlagGroup batch_and_length() {
  return FlagGroup("Batch, length and data")
      .add("micro_batch_size", &A::micro_batch_size, "training.micro_batch_size",
           "Samples of one forward pass on a data-parallel rank.",
           required_number(between(1, 1'000'000)))
      .add("global_batch_size", &A::global_batch_size, "training.global_batch_size",
           "Samples of one step; the micro-batches of a rank follow from it. Without it each rank "
           "has one.",
           between(1, 1e9))
      .add("seq_length", &A::seq_length, "data.dataset_param.basic_parameters.cutoff_len",
           "Tokens of a sample; longer ones are cut.", required_number(at_least(1)))
      .add("train_iters", &A::train_iters, "training.train_iters", "Steps.",
           required_number(at_least(0)))
      .add("num_workers", &A::num_workers, "data.dataloader_param.num_workers",
           "Threads that prepare samples.", between(0, 4096))
      .add("seed", &A::seed, "training.seed", "Seed of all random numbers.",
           between(0, 9007199254740992.0));
}

FlagGroup rate_and_optimizer() {
  return FlagGroup("Learning rate and optimizer")
      .add("lr", &A::lr, "training.lr", "Peak learning rate.", required_number(at_least(0)))
      .add("min_lr", &A::min_lr, "training.lr_min", "Learning rate after a cosine decay.",
           at_least(0))
      .add("lr_decay_style", &A::lr_decay_style, "training.lr_decay_style",
           "Shape after the warm-up.",
           one_of({"constant", "linear", "cosine"},
                  {{"inverse-square-root", "not supported yet"}, {"WSD", "not supported yet"}}))
      .add("lr_decay_iters", &A::lr_decay_iters, "training.lr_decay_ratio",
           "Step at which a cosine decay ends; null is train_iters.", at_least(1))
      .add("lr_warmup_fraction", &A::lr_warmup_fraction, "training.lr_warmup_ratio",
           "Share of lr_decay_iters that is warm-up, whole steps.", between(0, 1))
      .add("lr_warmup_iters", &A::lr_warmup_iters, "training.lr_warmup_iters",
           "Steps of warm-up, instead of the fraction.", at_least(0))
      .add("lr_warmup_init", &A::lr_warmup_init, "training.lr_start",
           "Learning rate of the first step of the warm-up.", at_least(0))
      .add("optimizer_selection", &A::optimizer_selection, "training.optimizer",
           "AdamW; both names mean the same.", one_of({"fused_torch_adamw", "fused_adamw"}))
      .add("weight_decay", &A::weight_decay, "training.weight_decay",
           "Decoupled weight decay, on all trained parameters but biases and vectors.", at_least(0))
      .add("adam_beta1", &A::adam_beta1, "training.adam_beta1", "Decay of the first moment.",
           between_half_open(0, 1))
      .add("adam_beta2", &A::adam_beta2, "training.adam_beta2", "Decay of the second moment.",
           between_half_open(0, 1))
      .add("adam_eps", &A::adam_eps, "training.adam_eps", "Added to the denominator.", at_least(0))
      .add("clip_grad", &A::clip_grad, "training.clip_grad",
           "Largest norm of the gradients; 0 logs the norm and clips nothing.", at_least(0))
      .add("on_nan", &A::on_nan, "training.on_nan",
           "A step whose loss or gradient norm is not finite stops the run, or is left out (ours).",
           one_of({"stop", "skip"}))
      .add("bf16", &A::bf16, "",
           "Says that param_dtype of fsdp2_config.yaml is bf16; an error where it is not.")
      .add("fp16", &A::fp16, "",
           "Says that param_dtype of fsdp2_config.yaml is fp16; an error where it is not.");
}

FlagGroup loss_and_parallelism() {
  return FlagGroup("Loss, parallelism and model")
      .add("calculate_per_sample_loss", &A::calculate_per_sample_loss,
           "features.loss_cfg.loss_type", "As loss_type per_sample_loss in model.json.")
      .add("calculate_per_token_loss", &A::calculate_per_token_loss, "features.loss_cfg.loss_type",
           "As loss_type per_token_loss in model.json.")
      .add("tensor_model_parallel_size", &A::tensor_model_parallel_size,
           "parallel.tensor_parallel_size", "Tensor parallelism; only 1 is supported.")
      .add("pipeline_model_parallel_size", &A::pipeline_model_parallel_size, "",
           "Pipeline parallelism; only 1 is supported.")
      .add("context_parallel_size", &A::context_parallel_size, "parallel.ulysses_parallel_size",
           "Ranks that share one sequence.", between(1, 1'000'000))
      .add("context_parallel_algo", &A::context_parallel_algo, "", "How they share it.",
           one_of({"ulysses_cp_algo"}, {{"megatron_cp_algo", "ring attention is not supported yet"},
                                        {"hybrid_cp_algo", "ring attention is not supported yet"}}))
      .add("distributed_backend", &A::distributed_backend, "",
           "How ranks talk to each other; auto is nccl on GPUs, else shm on one host and gloo on "
           "several.",
           one_of({"auto", "nccl", "gloo", "shm"}))
      .add("nproc", &A::nproc, "", "Processes to start on this host (ours).", between(1, 4096))
      .add("untie_embeddings_and_output_weights", &A::untie_embeddings_and_output_weights, "",
           "The output layer has weights of its own, never those of the embedding. Required.")
      .add("init_model_with_meta_device", &A::init_model_with_meta_device,
           "training.init_model_with_meta_device",
           "Memory for each rank's own shards alone; always so here.");
}

FlagGroup checkpoints_and_logs() {
  return FlagGroup("Checkpoints and logs")
      .add("ckpt_format", &A::ckpt_format, "training.save_format", "Format of checkpoints.",
           one_of({"torch_dcp"}))
      .add(
          "load", &A::load, "training.load",
          "Folder to start from: a Hugging Face folder, a DCP folder, or the one above it. Without "
          "it, init_from_hf_path of model.json.",
          non_empty())
      .add("finetune", &A::finetune, "",
           "Start at step 0 with the weights of --load: a release or Hugging Face folder.")
      .add("no_load_strict", &A::no_load_strict, "training.load_strict",
           "Missing and unexpected tensors are warnings; missing ones start at random (ours).")
      .add("no_load_optim", &A::no_load_optim, "training.no_load_optim",
           "Start with a fresh optimizer.")
      .add("no_load_rng", &A::no_load_rng, "training.no_load_rng",
           "Start with fresh random generators.")
      .add("save", &A::save, "training.save", "Folder of checkpoints.", non_empty())
      .add("save_interval", &A::save_interval, "training.save_interval",
           "Steps between checkpoints; null saves at the end alone.", at_least(0))
      .add("no_save_optim", &A::no_save_optim, "training.no_save_optim",
           "Leave out the optimizer's state.")
      .add("no_save_rng", &A::no_save_rng, "training.no_save_rng",
           "Leave out the state of the random generators.")
      .add("async_save", &A::async_save, "training.save_async", "Write in the background.")
      .add("keep_last", &A::keep_last, "training.keep_last",
           "Checkpoints to keep; 0 keeps all (ours).", at_least(0))
      .add("log_interval", &A::log_interval, "training.log_interval",
           "Steps of a log line: their mean time and loss.", at_least(1))
      .add(
          "eval_interval", &A::eval_interval, "training.val_interval",
          "Steps between evaluations, where the program provides a validation set (data.json names "
          "none).",
          at_least(0))
      .add("log_tps", &A::log_tps, "",
           "Log the tokens per sample: all of them, with prompt and pictures.")
      .add("metrics_dir", &A::metrics_dir, "training.metrics_dir",
           "Folder of metrics.jsonl and TensorBoard events (ours).", non_empty())
      .add("help", &A::help, "", "Print all flags.")
      .add("reference", &A::reference, "", "Print the reference of flags and files.");
}

}  // namespace

std::string flag_name(const std::string& member_name) {
  std::string name = "--" + member_name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Flag::name() const { return flag_name(field.name); }

const std::vector<FlagGroup>& flag_groups() {
  static const std::vector<FlagGroup> groups = {inputs(), batch_and_length(), rate_and_optimizer(),
                                                loss_and_parallelism(), checkpoints_and_logs()};
  return groups;
}

const std::vector<IgnoredFlag>& ignored_flags() {
  static const char* const kFromModel = "The model's config.json says it.";
  static const char* const kKernels = "The fastest kernels are always used.";
  static const std::vector<IgnoredFlag> flags = {
      {"--use-mcore-models", false, "There is one implementation of a model."},
      {"--tokenizer-type", true, "The tokenizer is read from the model's folder."},
      {"--vocab-size", true, kFromModel},
      {"--make-vocab-size-divisible-by", true, kFromModel},
      {"--num-layers", true, kFromModel},
      {"--hidden-size", true, kFromModel},
      {"--ffn-hidden-size", true, kFromModel},
      {"--num-attention-heads", true, kFromModel},
      {"--max-position-embeddings", true, kFromModel},
      {"--position-embedding-type", true, kFromModel},
      {"--normalization", true, kFromModel},
      {"--swiglu", false, kFromModel},
      {"--disable-bias-linear", false, kFromModel},
      {"--use-fused-rmsnorm", false, kKernels},
      {"--use-fused-swiglu", false, kKernels},
      {"--use-fused-rotary-pos-emb", false, kKernels},
      {"--use-flash-attn", false, kKernels},
      {"--no-masked-softmax-fusion", false, kKernels},
      {"--no-bias-gelu-fusion", false, kKernels},
      {"--no-gradient-accumulation-fusion", false, "Gradients are summed in fp32 shards."},
      {"--attention-softmax-in-fp32", false, "Softmax is always computed in fp32."},
      {"--use-cpu-initialization", false, "Weights are loaded, shard by shard."},
      {"--trust-remote-code", false, "No code is read from a model's folder."},
      {"--no-check-for-nan-in-loss-and-grad", false,
       "What happens to a loss or gradient that is not finite is said by --on-nan."},
      {"--data-cache-path", true, "Data are mapped, not cached."},
      {"--distributed-timeout-minutes", true, "The watchdog names a rank that hangs."},
      {"--eval-iters", true, "The whole validation set is evaluated."},
      {"--split", true, "All samples are training data."},
      {"--log-throughput", false, "The time of each step is always logged."},
  };
  return flags;
}

const std::vector<RefusedFlag>& refused_flags() {
  static const std::vector<RefusedFlag> flags = {
      {"--expert-model-parallel-size", "set expert_parallel_size in fsdp2_config.yaml"},
      {"--num-experts", "the model's config.json says it; remove the flag"},
      {"--sequence-parallel", "it belongs to tensor parallelism, which is not supported yet"},
      {"--recompute-granularity", "list recompute_modules in fsdp2_config.yaml"},
      {"--recompute-method", "list recompute_modules in fsdp2_config.yaml"},
      {"--recompute-num-layers", "list recompute_modules in fsdp2_config.yaml"},
      {"--use-distributed-optimizer", "fully_shard cuts the optimizer's state already; remove it"},
      {"--train-samples", "give --train-iters"},
      {"--lr-warmup-samples", "give --lr-warmup-iters or --lr-warmup-fraction"},
      {"--lr-decay-samples", "give --lr-decay-iters"},
      {"--rampup-batch-size", "the batch size is the same in all steps"},
      {"--tensorboard-dir", "give --metrics-dir, which holds the TensorBoard events too"},
  };
  return flags;
}

}  // namespace shardloom::config::megatron
