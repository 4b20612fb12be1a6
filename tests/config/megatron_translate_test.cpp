// Flags and files together: the TrainConfig that they give, and rules that join them.
#include "shardloom/config/megatron/rules.h"
#include "tests/config/megatron_test_util.h"

namespace shardloom::config::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Paths in the example files start at the root of the repository.
class MegatronTranslate : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(SHARDLOOM_SOURCE_DIR);
  }
  void TearDown() override { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

// The same run told in both ways. What only differs in how it is told is put in as overrides.
TEST_F(MegatronTranslate, ExampleIsTheRunOfTheYamlExample) {
  const MegatronConfig megatron = load_megatron_config({"--use-torch-fsdp2",
                                                        "--untie-embeddings-and-output-weights",
                                                        "--ckpt-format",
                                                        "torch_dcp",
                                                        "--fsdp2-config-path",
                                                        "examples/tiny/megatron/fsdp2_config.yaml",
                                                        "--mm-model",
                                                        "examples/tiny/megatron/model.json",
                                                        "--mm-data",
                                                        "examples/tiny/megatron/data.json",
                                                        "--micro-batch-size",
                                                        "2",
                                                        "--seq-length",
                                                        "256",
                                                        "--train-iters",
                                                        "60",
                                                        "--lr",
                                                        "1.0e-3",
                                                        "--lr-decay-style",
                                                        "cosine",
                                                        "--lr-warmup-fraction",
                                                        "0.1",
                                                        "--clip-grad",
                                                        "1.0",
                                                        "--weight-decay",
                                                        "0",
                                                        "--seed",
                                                        "42",
                                                        "--log-interval",
                                                        "1",
                                                        "--eval-interval",
                                                        "0",
                                                        "--metrics-dir",
                                                        "out/tiny"});
  LoadedConfig yaml = load_train_config(
      "examples/tiny/train.yaml",
      {"training.gradient_accumulation_steps=null", "data.dataset_param.image_size=112",
       "features.recompute_plan.use_reentrant=true", "training.save_format=dcp",
       "features.chunkloss_plan.apply_module=language_model.lm_head"});
  EXPECT_EQ(megatron.loaded.dump(), yaml.dump());
  EXPECT_THAT(megatron.loaded.warnings, IsEmpty());
  EXPECT_THAT(check_paths(megatron.loaded), IsEmpty());

  LoadedConfig resolved = megatron.loaded;
  resolve_for_world(resolved, 2);
  resolve_for_world(yaml, 2);
  EXPECT_EQ(resolved.dump(), yaml.dump());
}

// All features on, in both ways.
TEST_F(MegatronTranslate, FeaturesAreThoseOfTheYamlPath) {
  WrittenFiles run;
  run.fsdp2 = R"(sharding_size: 2
sub_modules_to_wrap:
  - vision_model.encoder
  - language_model.model.layers.{*}
ignored_modules: [mlp1]
reshard_after_forward: false
param_dtype: bf16
reduce_dtype: fp32
output_dtype: fp32
cast_forward_inputs: false
offload_to_cpu: true
num_to_forward_prefetch: 1
num_to_backward_prefetch: 2
recompute_modules: ["language_model.model.layers.{*}"]
use_reentrant: false
expert_parallel_size: 2
moe_modules: ["language_model.model.layers.{*}.mlp.experts"]
)";
  run.model = R"({"model_id": "internvl3_5", "init_from_hf_path": "hf", "num_hidden_layers": 4,
  "freeze": ["vision_model"], "attn_implementation": "flash_attention_3",
  "loss_cfg": {"compute_mode": "chunk", "chunk_size": 512, "loss_type": "square_loss",
               "router_aux_loss_coef": 0.001}})";
  run.data = R"({"dataset_param": {"dataset_type": "multimodal",
    "basic_parameters": [{"data_path": "a.jsonl", "data_folder": "pictures"},
                         {"data_path": "b.jsonl", "repeat_time": 2}],
    "tokenizer_config": {"from_pretrained": "tokenizer"},
    "group_by_length": false, "min_dynamic_patch": 2, "max_dynamic_patch": 6,
    "use_thumbnail": false, "on_bad_sample": "skip"},
  "dataloader_param": {"shuffle": true, "shuffle_seed": "epoch", "pin_memory": true,
                       "num_workers": 3}})";
  const MegatronConfig megatron = run.load({"--context-parallel-size",
                                            "2",
                                            "--global-batch-size",
                                            "8",
                                            "--lr-decay-style",
                                            "cosine",
                                            "--min-lr",
                                            "1e-5",
                                            "--lr-warmup-init",
                                            "1e-6",
                                            "--lr-warmup-iters",
                                            "5",
                                            "--adam-beta1",
                                            "0.8",
                                            "--adam-beta2",
                                            "0.95",
                                            "--adam-eps",
                                            "1e-6",
                                            "--weight-decay",
                                            "0.1",
                                            "--clip-grad",
                                            "0",
                                            "--on-nan",
                                            "skip",
                                            "--no-load-strict",
                                            "--bf16",
                                            "--load",
                                            "start",
                                            "--save",
                                            "run",
                                            "--save-interval",
                                            "20",
                                            "--keep-last",
                                            "2",
                                            "--async-save",
                                            "--no-load-optim",
                                            "--no-load-rng",
                                            "--no-save-optim",
                                            "--no-save-rng",
                                            "--init-model-with-meta-device",
                                            "--log-interval",
                                            "7"});
  const LoadedConfig yaml = parse_train_config(R"(
parallel:
  fully_shard_parallel_size: 2
  ulysses_parallel_size: 2
  expert_parallel_size: 2
  fsdp_plan:
    apply_modules: [vision_model.encoder, "language_model.model.layers.{*}"]
    ignored_modules: [mlp1]
    reshard_after_forward: false
    param_dtype: bf16
    reduce_dtype: fp32
    output_dtype: fp32
    cast_forward_inputs: false
    cpu_offload: true
    num_to_forward_prefetch: 1
    num_to_backward_prefetch: 2
  ep_plan: {apply_modules: ["language_model.model.layers.{*}.mlp.experts"]}
model:
  model_id: internvl3_5
  model_name_or_path: hf
  num_hidden_layers: 4
  freeze: [vision_model]
  attn_implementation: flash_attention_3
data:
  dataset_param:
    dataset_type: internvl3_5
    pad_to: cutoff_len
    min_dynamic_patch: 2
    max_dynamic_patch: 6
    use_thumbnail: false
    on_bad_sample: skip
    basic_parameters: {dataset: a.jsonl, dataset_dir: pictures, cutoff_len: 256}
    preprocess_parameters: {model_name_or_path: tokenizer}
  dataloader_param: {shuffle: true, shuffle_seed: epoch, pin_memory: true, num_workers: 3}
features:
  loss_cfg: {loss_type: square_loss, router_aux_loss_coef: 0.001}
  recompute: true
  recompute_plan: {apply_modules: ["language_model.model.layers.{*}"], use_reentrant: false}
  enable_chunk_loss: true
  chunkloss_plan: {apply_module: language_model.lm_head, chunk_size: 512}
training:
  seed: 1234
  train_iters: 60
  micro_batch_size: 2
  global_batch_size: 8
  lr: 1e-3
  lr_min: 1e-5
  lr_start: 1e-6
  lr_decay_style: cosine
  lr_warmup_iters: 5
  adam_beta1: 0.8
  adam_beta2: 0.95
  adam_eps: 1e-6
  weight_decay: 0.1
  clip_grad: 0
  on_nan: skip
  load: start
  load_strict: false
  no_load_optim: true
  no_load_rng: true
  save: run
  save_format: dcp
  save_interval: 20
  save_async: true
  keep_last: 2
  no_save_optim: true
  no_save_rng: true
  init_model_with_meta_device: true
  log_interval: 7
  val_interval: 1000
)",
                                               "run.yaml");
  EXPECT_EQ(megatron.loaded.dump(), yaml.dump());
  ASSERT_EQ(megatron.data.dataset_param.basic_parameters.size(), 2u);
}

TEST_F(MegatronTranslate, PublishedFilesOfTheLargeModelAreGood) {
  const MegatronConfig config = load_megatron_config({"--use-torch-fsdp2",
                                                      "--untie-embeddings-and-output-weights",
                                                      "--fsdp2-config-path",
                                                      "examples/internvl3.5/fsdp2_config.yaml",
                                                      "--mm-model",
                                                      "examples/internvl3.5/model.json",
                                                      "--mm-data",
                                                      "examples/internvl3.5/data.json",
                                                      "--micro-batch-size",
                                                      "1",
                                                      "--seq-length",
                                                      "4096",
                                                      "--train-iters",
                                                      "10000",
                                                      "--lr",
                                                      "1.0e-5",
                                                      "--lr-decay-style",
                                                      "cosine",
                                                      "--calculate-per-sample-loss",
                                                      "--num-workers",
                                                      "8"});
  EXPECT_THAT(config.loaded.warnings, IsEmpty());
  const DatasetParam& dataset = config.loaded.config.data.dataset_param;
  EXPECT_EQ(dataset.image_size, 448);
  EXPECT_EQ(dataset.max_dynamic_patch, 12);
  EXPECT_EQ(dataset.pad_to, "longest");
  EXPECT_EQ(config.loaded.config.features.loss_cfg.loss_type, "per_sample_loss");
  EXPECT_EQ(config.loaded.config.data.dataloader_param.num_workers, 8);
}

TEST(MegatronRules, LossTypeComesFromFileOrFlag) {
  WrittenFiles run;
  EXPECT_EQ(run.config().features.loss_cfg.loss_type, "default");
  EXPECT_EQ(run.config({"--calculate-per-token-loss"}).features.loss_cfg.loss_type,
            "per_token_loss");
  run.model = R"({"model_id": "x", "init_from_hf_path": "hf",
 "loss_cfg": {"loss_type": "token_loss", "compute_mode": "dynamic_chunk", "chunk_size": 64}})";
  const FeaturesConfig features = run.config().features;
  EXPECT_EQ(features.loss_cfg.loss_type, "per_token_loss");
  EXPECT_TRUE(features.enable_chunk_loss && features.enable_dynamic_chunk_loss);
  EXPECT_EQ(features.chunkloss_plan.total_chunk_size, 64);
  EXPECT_EQ(features.chunkloss_plan.chunk_size, 1024);
  EXPECT_EQ(features.chunkloss_plan.apply_module, "lm_head");
  EXPECT_EQ(run.config().model.model_id, "x");
  EXPECT_EQ(run.error({"--calculate-per-sample-loss"}),
            "model.json:2:28: loss_cfg.loss_type is token_loss, but the command line has "
            "--calculate-per-sample-loss; remove one of them");
}

TEST(MegatronRules, WarmUpIsAShareOfTheDecay) {
  const auto training = [](const Flags& flags) {
    Flags all = {"--lr-decay-style", "cosine"};
    all.insert(all.end(), flags.begin(), flags.end());
    return WrittenFiles{}.config(all).training;
  };
  EXPECT_EQ(training({"--lr-warmup-fraction", "0.1"}).lr_warmup_ratio, 0.1);
  EXPECT_EQ(training({}).lr_decay_ratio, 1.0);
  // 60 steps, of which 49 decay and 4 (a tenth of the 49) warm up.
  const TrainingConfig part = training({"--lr-decay-iters", "49", "--lr-warmup-fraction", "0.1"});
  EXPECT_EQ(static_cast<int64_t>(60 * part.lr_decay_ratio), 49);
  EXPECT_EQ(static_cast<int64_t>(60 * part.lr_warmup_ratio), 4);
  EXPECT_EQ(WrittenFiles{}.error({"--lr-warmup-iters", "3", "--lr-warmup-fraction", "0.1"}),
            "--lr-warmup-iters 3: --lr-warmup-iters and --lr-warmup-fraction are both given; "
            "remove one of them");
}

// The schedule rounds total * share down; no share may lose a step by it.
TEST(MegatronRules, SharesKeepWholeSteps) {
  for (int64_t total = 1; total <= 300; ++total) {
    for (int64_t part = 0; part <= total + 5; ++part) {
      ASSERT_EQ(static_cast<int64_t>(static_cast<double>(total) * share_of(part, total)), part)
          << part << " of " << total;
    }
  }
  EXPECT_EQ(share_of(5, 0), 1.0);
}

// So that a run which began so is resumed with the same file.
TEST(MegatronRules, LoadGoesBeforeRandomWeights) {
  WrittenFiles run;
  run.model = R"({"model_id": "x", "init_from_hf_path": "hf", "random_init": true})";
  EXPECT_TRUE(run.config().model.random_init);
  EXPECT_FALSE(run.config({"--load", "out/run"}).model.random_init);
}

TEST(MegatronRules, OneTileWithoutDynamicSize) {
  WrittenFiles run;
  run.data = R"({"dataset_param": {"dataset_type": "multimodal", "dynamic_image_size": false,
  "min_dynamic_patch": 3, "max_dynamic_patch": 6, "basic_parameters": {"data_path": "a.jsonl"}}})";
  const DatasetParam dataset = run.config().data.dataset_param;
  EXPECT_EQ(dataset.min_dynamic_patch, 1);
  EXPECT_EQ(dataset.max_dynamic_patch, 1);
  EXPECT_EQ(dataset.basic_parameters.dataset_dir, ".");
}

TEST(MegatronRules, NameEachFaultByItsPlace) {
  const auto with_fsdp2 = [](const std::string& text, const Flags& flags = {}) {
    WrittenFiles run;
    run.fsdp2 = text;
    return run.error(flags);
  };
  EXPECT_EQ(with_fsdp2("param_dtype: fp32\n", {"--bf16"}),
            "--bf16: needs param_dtype: bf16 in fsdp2.yaml, which has fp32");
  EXPECT_EQ(with_fsdp2("sharding_size: auto\n", {"--fp16"}),
            "--fp16: needs param_dtype: fp16 in fsdp2.yaml, which has null");
  EXPECT_EQ(with_fsdp2("sub_modules_to_wrap: [a, \"layers.{x}\"]\n").substr(0, 33),
            "fsdp2.yaml:1:26: sub_modules_to_w");
  EXPECT_EQ(with_fsdp2("expert_parallel_size: 2\n"),
            "fsdp2.yaml:1:23: expert_parallel_size is 2, which needs moe_modules");
  EXPECT_EQ(with_fsdp2("param_dtype: fp64\n"),
            "fsdp2.yaml:1:14: param_dtype fp64 is not supported yet (here it "
            "must be null or fp32 or bf16 or fp16)");
  EXPECT_EQ(WrittenFiles{}.error({"--min-lr", "1e-5"}),
            "--min-lr 1e-5: a linear decay to another rate than 0 is not supported; use "
            "--lr-decay-style cosine");
  EXPECT_EQ(WrittenFiles{}.error({"--lr-decay-iters", "50"}),
            "--lr-decay-iters 50: a linear decay that does not end at --train-iters 60 is not "
            "supported; use --lr-decay-style cosine");
  EXPECT_EQ(WrittenFiles{}.error({"--min-lr", "1", "--lr-decay-style", "cosine"}),
            "--min-lr 1: --min-lr is 1, more than lr 0.001");
  WrittenFiles run;
  run.data = R"({"dataset_param": {"dataset_type": "multimodal",
  "basic_parameters": {"data_path": "a.jsonl"}},
  "dataloader_param": {"drop_last": false, "num_workers": 3}})";
  EXPECT_EQ(run.error({"--num-workers", "4"}),
            "data.json:3:37: dataloader_param.drop_last is false; an incomplete last batch "
            "cannot be cut over all ranks, set it to true\n"
            "data.json:3:59: dataloader_param.num_workers is 3, but the command line has "
            "--num-workers 4; remove one of them");
}

TEST(MegatronRules, FaultsOfAllFilesStandTogether) {
  WrittenFiles run;
  run.fsdp2 = "sharding_sise: auto\n";
  run.model = "{\"model_id\": \"x\"}";
  run.data = "{\"dataset_param\": [}";
  const std::string error = run.error();
  EXPECT_THAT(error, StartsWith("fsdp2.yaml:1:1: unknown key sharding_sise (did you mean"));
  EXPECT_THAT(error, HasSubstr("\nmodel.json:1:1: init_from_hf_path is missing\n"));
  EXPECT_THAT(error, HasSubstr("\ndata.json:1:"));
}

TEST(MegatronRules, PathsThatAreMissingNameWhoNamedThem) {
  WrittenFiles run;
  const std::vector<std::string> faults = check_paths(run.load({"--load", "no/such/run"}).loaded);
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_THAT(faults[0], StartsWith("--load no/such/run: training.load: the folder "));
  EXPECT_THAT(faults[1], HasSubstr("model.json:1:47: model.model_name_or_path: the folder "));
  EXPECT_THAT(faults[2], HasSubstr("data.json:2:"));
}

TEST(MegatronRules, PathsOfFurtherSourcesAreChecked) {
  WrittenFiles run;
  run.data = R"({"dataset_param": {"dataset_type": "multimodal", "basic_parameters": [
  {"data_path": "first.jsonl"},
  {"data_path": "no.jsonl", "data_folder": "no_folder"},
  {"data_path": ")" +
             WrittenFiles::folder().string() + R"("}]}})";
  const std::vector<std::string> faults = check_further_sources(run.load());
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_THAT(faults[0],
              HasSubstr("data.json:3:17: dataset_param.basic_parameters[1].data_path: "));
  EXPECT_THAT(faults[0], HasSubstr("/no.jsonl does not exist"));
  EXPECT_THAT(faults[1],
              HasSubstr("data.json:3:44: dataset_param.basic_parameters[1].data_folder"));
  EXPECT_THAT(faults[2], HasSubstr("is not a file"));
}

TEST(MegatronRules, ChunksWithoutTheModeAreTold) {
  WrittenFiles run;
  run.model = R"({"model_id": "internvl", "init_from_hf_path": "hf",
 "loss_cfg": {"chunk_size": 64, "apply_module": null}})";
  EXPECT_THAT(run.load().loaded.warnings,
              ElementsAre(HasSubstr("model.json:2:29: loss_cfg.chunk_size has no effect unless "
                                    "loss_cfg.compute_mode is chunk or dynamic_chunk")));
}

TEST(MegatronRules, FinetuneTakesWeightsAlone) {
  WrittenFiles run;
  const std::filesystem::path folder = WrittenFiles::folder();
  const Flags flags = {"--finetune", "--load", folder.string()};
  const auto tracked = [&](const char* text) {
    std::ofstream(folder / "latest_checkpointed_iteration.txt") << text;
    return run.error(flags);
  };
  EXPECT_EQ(tracked("release"), "");
  EXPECT_THAT(tracked("200"), HasSubstr("is a run at iteration 200, which goes on from there"));
  EXPECT_THAT(run.error({"--finetune", "--load", "a/iter_0000020"}),
              StartsWith("--finetune: a/iter_0000020 is a run at iteration 0000020"));
  EXPECT_EQ(run.error({"--finetune"}), "");
}

// ---- sizes

TEST(MegatronSizes, ShardingSizeIsOneUnlessGiven) {
  WrittenFiles run;
  run.fsdp2 = "param_dtype: bf16\n";
  LoadedConfig loaded = run.load().loaded;
  EXPECT_THAT(resolve_sizes(loaded, 2), IsEmpty());
  EXPECT_EQ(loaded.config.parallel.fully_shard_parallel_size, 1);
  LoadedConfig split = run.load({"--context-parallel-size", "2"}).loaded;
  const std::vector<std::string> faults = resolve_sizes(split, 2);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults[0], HasSubstr("fsdp2.yaml (without sharding_size): "
                                   "parallel.fully_shard_parallel_size is 1; it must be a multiple "
                                   "of ring x ulysses = 2"));
}

TEST(MegatronSizes, WholeExpertsAreCopiedOverTheOtherRanks) {
  WrittenFiles run;
  run.fsdp2 =
      "sharding_size: auto\nexpert_parallel_size: 2\nreshard_local_experts: false\n"
      "moe_modules: [experts]\n";
  LoadedConfig loaded = run.load().loaded;
  EXPECT_THAT(resolve_sizes(loaded, 4), IsEmpty());
  EXPECT_EQ(loaded.config.parallel.expert_fully_shard_parallel_size, 1);
  EXPECT_EQ(loaded.config.parallel.expert_data_parallel_size, 2);
  LoadedConfig odd = run.load().loaded;
  EXPECT_THAT(resolve_sizes(odd, 3),
              ElementsAre(HasSubstr("parallel.expert_parallel_size does not fit")));
}

TEST(MegatronSizes, OfTheModelAndOfDataJsonMustAgree) {
  WrittenFiles run;
  run.data =
      R"({"dataset_param": {"dataset_type": "multimodal", "image_size": 448, "patch_size": 14,
  "down_sample_ratio": 0.5, "basic_parameters": {"data_path": "a.jsonl"}}})";
  const MegatronConfig config = run.load();
  EXPECT_THAT(check_model_sizes(config, {448, 14, 0.5}), IsEmpty());
  const auto faults = check_model_sizes(config, {112, 28, 0.25});
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_THAT(faults[0], HasSubstr("data.json:1:64: dataset_param.image_size is 448, but the model "
                                   "in hf has 112"));
  EXPECT_THAT(faults[1], HasSubstr("dataset_param.patch_size is 14, but the model in hf has 28"));
  EXPECT_THAT(faults[2],
              HasSubstr("dataset_param.down_sample_ratio is 0.5, but the model in hf has "
                        "0.25"));
}

}  // namespace
}  // namespace shardloom::config::megatron
