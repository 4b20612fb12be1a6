#include "shardloom/config/megatron/flags.h"
#include "tests/config/megatron_test_util.h"

namespace shardloom::config::megatron {
namespace {

using ::testing::HasSubstr;

std::string flags_error(const Flags& more) {
  return error_of([&] { parse_arguments(with_required(more)); });
}

std::string line(const std::string& message) { return "command line: " + message; }

// The flags of the published script for InternVL3.5, with its paths, one copy of each line.
Flags published_flags() {
  return {"--use-mcore-models",
          "--tensor-model-parallel-size",
          "1",
          "--pipeline-model-parallel-size",
          "1",
          "--context-parallel-size",
          "1",
          "--context-parallel-algo",
          "ulysses_cp_algo",
          "--micro-batch-size",
          "1",
          "--global-batch-size",
          "16",
          "--tokenizer-type",
          "NullTokenizer",
          "--vocab-size",
          "152064",
          "--seq-length",
          "4096",
          "--make-vocab-size-divisible-by",
          "1",
          "--normalization",
          "RMSNorm",
          "--use-fused-rmsnorm",
          "--swiglu",
          "--use-fused-swiglu",
          "--no-masked-softmax-fusion",
          "--lr",
          "1.0e-5",
          "--lr-decay-style",
          "cosine",
          "--weight-decay",
          "0",
          "--train-iters",
          "10000",
          "--lr-warmup-fraction",
          "0.1",
          "--clip-grad",
          "0.0",
          "--adam-beta1",
          "0.9",
          "--adam-beta2",
          "0.999",
          "--no-gradient-accumulation-fusion",
          "--seed",
          "42",
          "--load",
          "ckpt/convert_path/InternVL3_5-30B-A3B-Instruct",
          "--use-flash-attn",
          "--no-load-optim",
          "--no-load-rng",
          "--no-save-optim",
          "--no-save-rng",
          "--num-workers",
          "8",
          "--use-torch-fsdp2",
          "--untie-embeddings-and-output-weights",
          "--ckpt-format",
          "torch_dcp",
          "--fsdp2-config-path",
          "./examples/internvl3.5/fsdp2_config.yaml",
          "--optimizer-selection",
          "fused_torch_adamw",
          "--use-cpu-initialization",
          "--calculate-per-sample-loss",
          "--log-tps",
          "--init-model-with-meta-device",
          "--mm-data",
          "./examples/internvl3.5/data.json",
          "--mm-model",
          "./examples/internvl3.5/model.json",
          "--mm-tool",
          "./mindspeed_mm/tools/tools.json",
          "--log-interval",
          "1",
          "--save-interval",
          "10000",
          "--eval-interval",
          "10000",
          "--eval-iters",
          "5000",
          "--save",
          "internvl35_finetune_result",
          "--ckpt-format",
          "torch_dcp",
          "--distributed-backend",
          "nccl"};
}

TEST(MegatronArguments, ReadThePublishedScriptAsItStands) {
  const Arguments args = parse_arguments(published_flags());
  EXPECT_TRUE(args.use_torch_fsdp2);
  EXPECT_TRUE(args.untie_embeddings_and_output_weights);
  EXPECT_TRUE(args.init_model_with_meta_device);
  EXPECT_TRUE(args.calculate_per_sample_loss);
  EXPECT_TRUE(args.no_load_optim && args.no_load_rng && args.no_save_optim && args.no_save_rng);
  EXPECT_TRUE(args.log_tps);
  EXPECT_EQ(args.fsdp2_config_path, "./examples/internvl3.5/fsdp2_config.yaml");
  EXPECT_EQ(args.mm_model, "./examples/internvl3.5/model.json");
  EXPECT_EQ(args.mm_data, "./examples/internvl3.5/data.json");
  EXPECT_EQ(args.mm_tool, "./mindspeed_mm/tools/tools.json");
  EXPECT_EQ(args.micro_batch_size, 1);
  EXPECT_EQ(args.global_batch_size, 16);
  EXPECT_EQ(args.seq_length, 4096);
  EXPECT_EQ(args.train_iters, 10000);
  EXPECT_EQ(args.lr, 1e-5);
  EXPECT_EQ(args.lr_decay_style, "cosine");
  EXPECT_EQ(args.lr_warmup_fraction, 0.1);
  EXPECT_EQ(args.weight_decay, 0.0);
  EXPECT_EQ(args.clip_grad, 0.0);
  EXPECT_EQ(args.adam_beta1, 0.9);
  EXPECT_EQ(args.adam_beta2, 0.999);
  EXPECT_EQ(args.seed, 42);
  EXPECT_EQ(args.num_workers, 8);
  EXPECT_EQ(args.load, "ckpt/convert_path/InternVL3_5-30B-A3B-Instruct");
  EXPECT_EQ(args.save, "internvl35_finetune_result");
  EXPECT_EQ(args.save_interval, 10000);
  EXPECT_EQ(args.eval_interval, 10000);
  EXPECT_EQ(args.log_interval, 1);
  EXPECT_EQ(args.distributed_backend, "nccl");
  EXPECT_EQ(args.optimizer_selection, "fused_torch_adamw");
  EXPECT_EQ(args.sources.at("lr").str(), "--lr 1.0e-5");
  EXPECT_EQ(args.sources.at("log_tps").str(), "--log-tps");
  EXPECT_FALSE(args.sources.contains("min_lr"));
}

TEST(MegatronArguments, HaveMegatronsDefaults) {
  const Arguments args = parse_arguments(with_required());
  EXPECT_EQ(args.seed, 1234);
  EXPECT_EQ(args.weight_decay, 0.01);
  EXPECT_EQ(args.lr_decay_style, "linear");
  EXPECT_EQ(args.min_lr, 0.0);
  EXPECT_EQ(args.log_interval, 100);
  EXPECT_EQ(args.num_workers, 2);
  EXPECT_EQ(args.clip_grad, 1.0);
  EXPECT_EQ(args.adam_eps, 1e-8);
  EXPECT_EQ(args.context_parallel_size, 1);
  EXPECT_EQ(args.distributed_backend, "auto");
  EXPECT_EQ(args.global_batch_size, std::nullopt);
  EXPECT_EQ(args.save_interval, std::nullopt);
  EXPECT_EQ(args.nproc, std::nullopt);
}

TEST(MegatronArguments, TakeTextAsItIsWritten) {
  const Arguments args =
      parse_arguments(with_required({"--load", "2024", "--save=a=b", "--nproc", "2"}));
  EXPECT_EQ(args.load, "2024");
  EXPECT_EQ(args.save, "a=b");
  EXPECT_EQ(args.nproc, 2);
}

TEST(MegatronArguments, NameEachFault) {
  const struct {
    Flags flags;
    std::string error;
  } cases[] = {
      {{"--micro-batchsize", "2"},
       "unknown flag --micro-batchsize (did you mean --micro-batch-size?)"},
      {{"--lr_decay_style", "cosine"},
       "unknown flag --lr_decay_style (did you mean --lr-decay-style?)"},
      {{"--moonshine"}, "unknown flag --moonshine"},
      {{"lr"}, "expected a flag such as --lr, got \"lr\""},
      {{"--seed"}, "--seed needs a value"},
      {{"--vocab-size", "--seed", "1"}, "--vocab-size needs a value"},
      {{"--seed", "1.5"}, "--seed: expected a whole number, got \"1.5\""},
      {{"--clip-grad", "x"}, "--clip-grad: expected a number, got \"x\""},
      {{"--clip-grad", "-1"}, "--clip-grad: must be >= 0, got -1"},
      {{"--log-tps=true"}, "--log-tps takes no value, got \"true\""},
      {{"--swiglu=1"}, "--swiglu takes no value, got \"1\""},
      {{"--lr", "1e-4"}, "--lr is given twice: 1.0e-3 and 1e-4"},
      {{"--ckpt-format", "torch_dist"},
       "--ckpt-format: \"torch_dist\" is not one of torch_dcp (did you mean torch_dcp?)"},
      {{"--tensor-model-parallel-size", "2"},
       "--tensor-model-parallel-size 2 is not supported yet; only 1 is"},
      {{"--pipeline-model-parallel-size", "4"},
       "--pipeline-model-parallel-size 4 is not supported yet; only 1 is"},
      {{"--context-parallel-algo", "megatron_cp_algo"},
       "--context-parallel-algo: \"megatron_cp_algo\" is not one of ulysses_cp_algo (ring "
       "attention "
       "is not supported yet)"},
      {{"--lr-decay-style", "WSD"},
       "--lr-decay-style: \"WSD\" is not one of constant, linear, cosine (not supported yet)"},
      {{"--distributed-backend", "mpi"},
       "--distributed-backend: \"mpi\" is not one of auto, nccl, gloo, shm"},
      {{"--expert-model-parallel-size", "2"},
       "--expert-model-parallel-size is not supported; set expert_parallel_size in "
       "fsdp2_config.yaml"},
      {{"--calculate-per-sample-loss", "--calculate-per-token-loss"},
       "--calculate-per-sample-loss and --calculate-per-token-loss are both given; remove one of "
       "them"},
      {{"--bf16", "--fp16"}, "--bf16 and --fp16 are both given; remove one of them"},
  };
  for (const auto& one : cases) EXPECT_EQ(flags_error(one.flags), line(one.error));
}

TEST(MegatronArguments, NameAllThatIsMissingAtOnce) {
  EXPECT_EQ(
      error_of([] {
        parse_arguments({"--seed", "x", "--seqlength", "5"});
      }),
      line("--seed: expected a whole number, got \"x\"\n") +
          line("unknown flag --seqlength (did you mean --seq-length?)\n") +
          line("--fsdp2-config-path is missing\n") + line("--mm-model is missing\n") +
          line("--mm-data is missing\n") + line("--micro-batch-size is missing\n") +
          line("--seq-length is missing\n") + line("--train-iters is missing\n") +
          line("--lr is missing\n") +
          line("--use-torch-fsdp2 is missing; training without fully_shard is not "
               "supported\n") +
          line("--untie-embeddings-and-output-weights is missing; an output layer that shares "
               "the embedding's weights is not supported"));
}

TEST(MegatronArguments, HelpNeedsNothingElseAndNamesAllFlags) {
  EXPECT_TRUE(parse_arguments({"--help"}).help);
  EXPECT_TRUE(parse_arguments({"-h", "--nonsense"}).help);
  EXPECT_TRUE(parse_arguments({"--reference"}).reference);
  const std::string help = arguments_help();
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) {
      EXPECT_THAT(help, HasSubstr("  " + flag.name())) << flag.name();
      EXPECT_NE(std::string(flag.field.meaning), "") << flag.name();
    }
  }
  for (const IgnoredFlag& flag : ignored_flags()) EXPECT_THAT(help, HasSubstr("  " + flag.name));
  EXPECT_THAT(help, HasSubstr("Peak learning rate. [required]"));
  EXPECT_THAT(help, HasSubstr("pretrain_transformers --use-torch-fsdp2"));
}

// A name in two tables would hide one of them.
TEST(MegatronArguments, HaveEachNameOnce) {
  std::vector<std::string> names;
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) names.push_back(flag.name());
  }
  for (const IgnoredFlag& flag : ignored_flags()) names.push_back(flag.name);
  for (const RefusedFlag& flag : refused_flags()) names.push_back(flag.name);
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  EXPECT_EQ(sorted.size(), names.size());
}

}  // namespace
}  // namespace shardloom::config::megatron
