// The command line of the Megatron-style path: flags in Megatron's names, as in
//   --use-torch-fsdp2 --fsdp2-config-path fsdp2_config.yaml --mm-model model.json --lr 1.0e-5
// A member is its flag without the dashes in front and with '_' for '-'. docs/megatron.md lists all
// flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/config/schema.h"

namespace shardloom::config::megatron {

struct Arguments {
  bool help = false;       // nothing else is checked then
  bool reference = false;  // asks for reference_markdown(); nothing else is checked then

  // Inputs.
  bool use_torch_fsdp2 = false;  // required
  std::string fsdp2_config_path;
  std::string mm_model;
  std::string mm_data;
  std::optional<std::string> mm_tool;

  // Batch, length and data.
  int64_t micro_batch_size = 0;              // required
  std::optional<int64_t> global_batch_size;  // none: one micro-batch of each data-parallel rank
  int64_t seq_length = 0;                    // required
  int64_t train_iters = 0;                   // required
  int64_t num_workers = 2;
  int64_t seed = 1234;

  // Learning rate and optimizer.
  double lr = 0.0;  // required
  double min_lr = 0.0;
  std::string lr_decay_style = "linear";     // constant | linear | cosine
  std::optional<int64_t> lr_decay_iters;     // none: train_iters
  std::optional<double> lr_warmup_fraction;  // of lr_decay_iters
  int64_t lr_warmup_iters = 0;
  double lr_warmup_init = 0.0;
  std::string optimizer_selection = "fused_torch_adamw";
  double weight_decay = 0.01;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double clip_grad = 1.0;
  std::string on_nan = "stop";  // stop | skip
  bool bf16 = false;
  bool fp16 = false;

  // Loss.
  bool calculate_per_sample_loss = false;
  bool calculate_per_token_loss = false;

  // Parallelism.
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  std::string context_parallel_algo = "ulysses_cp_algo";
  std::string distributed_backend = "auto";  // auto | nccl | gloo | shm
  std::optional<int64_t> nproc;  // processes to start here; none: as the environment says

  // Model.
  bool untie_embeddings_and_output_weights = false;  // required
  bool init_model_with_meta_device = false;

  // Checkpoints.
  std::string ckpt_format = "torch_dcp";
  std::optional<std::string> load;  // a DCP folder, the folder above it, or a Hugging Face folder
  bool finetune = false;            // weights alone, from iteration 0
  bool no_load_strict = false;      // missing and unexpected tensors are warnings
  bool no_load_optim = false;
  bool no_load_rng = false;
  std::optional<std::string> save;
  std::optional<int64_t> save_interval;  // none: only at the end
  bool no_save_optim = false;
  bool no_save_rng = false;
  bool async_save = false;
  int64_t keep_last = 0;  // 0: all

  // Logs.
  int64_t log_interval = 100;
  bool log_tps = false;
  int64_t eval_interval = 1000;  // where there is a validation set; 0: never
  std::optional<std::string> metrics_dir;

  // Where each given value stands, by member name: origin "--lr 1.0e-5".
  Sources sources;
};

// Arguments behind the program's name, as "--flag value" or "--flag=value"; the last of equal
// repetitions counts. Throws one ConfigError with a line for each fault: unknown flag, missing or
// unreadable value, flag given twice with different values, required flag missing, value that
// nothing here supports.
Arguments parse_arguments(const std::vector<std::string>& args);

// Text of --help: all flags with meaning and default, and an example.
std::string arguments_help();
// The tables of flags for reference_markdown().
std::string arguments_markdown();

}  // namespace shardloom::config::megatron
