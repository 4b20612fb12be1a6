#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string built_error(const std::vector<std::string>& overrides) {
  return error_of([&] { parse_train_config(minimal(), "run.yaml", overrides); });
}

struct Case {
  std::vector<std::string> overrides;
  const char* error;  // a part of it; "" when there is none
};

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string error = override_error(c.overrides);
    if (std::string(c.error).empty()) {
      EXPECT_EQ(error, "") << c.overrides.front();
    } else {
      EXPECT_THAT(error, HasSubstr(c.error)) << c.overrides.front();
    }
  }
}

TEST(Validate, RequiredKeys) {
  EXPECT_EQ(parse_error("training: {seed: 1}\n"),
            "run.yaml:1:1: model.model_id is missing\n"
            "run.yaml:1:1: model.model_name_or_path is missing\n"
            "run.yaml:1:1: data.dataset_param.dataset_type is missing\n"
            "run.yaml:1:1: data.dataset_param.basic_parameters.dataset is missing");
}

TEST(Validate, LearningRate) {
  check(
      {{{"training.lr=1e-5", "training.lr_min=1e-4"},
        "training.lr_min is 0.0001, more than lr 1e-05"},
       {{"training.lr=1e-5", "training.lr_start=1e-4"},
        "training.lr_start is 0.0001, more than lr 1e-05"},
       {{"training.lr=0"}, ""},
       {{"training.lr=-1"}, "training.lr: must be >= 0, got -1"},
       {{"training.lr=inf"}, "inf is not finite"},
       {{"training.lr_warmup_iters=5", "training.lr_warmup_ratio=0.1"}, "are both given"},
       {{"training.lr_warmup_iters=5", "training.lr_warmup_ratio=0.0"}, ""},
       {{"training.lr_warmup_iters=5", "training.train_iters=4"}, "is 5, more than train_iters 4"},
       {{"training.lr_warmup_iters=5", "training.train_iters=5"}, ""},
       {{"training.lr_warmup_iters=5", "training.train_iters=0"}, ""},
       {{"training.lr_warmup_ratio=1.1"}, "must be >= 0 and <= 1"},
       {{"training.lr_decay_style=cosin"},
        "\"cosin\" is not one of constant, linear, cosine (did you mean cosine?)"}});
}

TEST(Validate, Ranges) {
  check({{{"training.micro_batch_size=0"}, "must be >= 1"},
         {{"training.gradient_accumulation_steps=0"}, "must be >= 1"},
         {{"training.train_iters=-1"}, "must be >= 0"},
         {{"training.val_interval=-1"}, "must be >= 0"},
         {{"training.val_micro_batch_size=0"}, "must be >= 1"},
         {{"training.mem_fraction_static=0"}, "must be > 0 and <= 1"},
         {{"training.mem_fraction_static=1"}, ""},
         {{"training.manual_gc_interval=-1"}, "must be >= 0"},
         {{"training.log_interval=0"}, "must be >= 1"},
         {{"training.clip_grad=-1"}, "must be >= 0"},
         {{"training.adam_beta2=1"}, "must be >= 0 and < 1"},
         {{"model.num_hidden_layers=0"}, "must be >= 1"},
         {{"data.dataset_param.basic_parameters.cutoff_len=0"}, "must be >= 1"},
         {{"parallel.ulysses_parallel_size=0"}, "must be >= 1"},
         {{"parallel.fsdp_plan.num_to_backward_prefetch=-1"}, "must be >= 0"},
         {{"parallel.fully_shard_parallel_size=atuo"}, "expected a whole number, got \"atuo\""},
         {{"data.dataset_param.min_dynamic_patch=3", "data.dataset_param.max_dynamic_patch=2"},
          "min_dynamic_patch is 3, more than max_dynamic_patch 2"}});
}

TEST(Validate, Choices) {
  check({{{"features.loss_cfg.loss_type=custom"}, "(the model's own loss is called raw)"},
         {{"features.loss_cfg.loss_type=per_samples_loss"}, "did you mean per_sample_loss?"},
         {{"features.loss_cfg.loss_type=square_loss"}, ""},
         {{"parallel.fsdp_plan.param_dtype=bfloat16"},
          "\"bfloat16\" is not one of fp16, bf16, fp32, fp64"},
         {{"parallel.fsdp_plan.reduce_dtype=int8"}, "\"int8\" is not one of"},
         {{"training.device=gpu"}, "(did you mean cuda?)"},
         {{"training.device=cuda"}, ""},
         {{"parallel.fsdp_plan.param_dtype=bfloat16"}, "(write bf16)"},
         {{"training.on_nan=ignore"}, "is not one of stop, skip"},
         {{"data.dataset_param.on_bad_sample=skipp"}, "did you mean skip?"},
         {{"data.dataset_param.pad_to=max"}, "is not one of longest, cutoff_len"},
         {{"data.dataset_param.structural_tokens=plain"}, ""},
         {{"data.dataset_param.conv_style=internvl2"}, "did you mean internvl2_5?"},
         {{"data.dataloader_param.shuffle_seed=epochs"}, "did you mean epoch?"},
         {{"data.dataloader_param.sampler_type=RandomSampler"},
          "is not one of BaseRandomBatchSampler"},
         {{"parallel.ep_plan.dispatcher=all2all"}, "did you mean alltoall?"}});
}

TEST(Validate, Data) {
  check(
      {{{"data.dataloader_param.drop_last=false"}, "drop_last is false"},
       {{"data.dataset_param.basic_parameters.dataset=\"\""}, "dataset: must not be empty"},
       {{"data.dataset_param.basic_parameters.dataset=[]"}, "dataset is empty"},
       {{"data.dataset_param.basic_parameters.dataset=a.jsonl,,b.jsonl"}, "has an empty path"},
       {{"data.dataset_param.basic_parameters.dataset_dir=\"\""}, "dataset_dir: must not be empty"},
       {{"data.val_dataset_param.dataset_type=internvl3_5"},
        "data.val_dataset_param.basic_parameters.dataset is missing"}});
  EXPECT_THAT(with({"data.dataset_param.basic_parameters.dataset=a.jsonl, b.jsonl"})
                  .data.dataset_param.basic_parameters.dataset,
              ElementsAre("a.jsonl", "b.jsonl"));
}

TEST(Validate, Patterns) {
  check(
      {{{"model.freeze=[\"\"]"}, "model.freeze[0] (pattern \"\"): an empty pattern"},
       {{"model.freeze=[vision_model.*]"}, "a bare * is not part of the grammar"},
       {{"parallel.fsdp_plan.apply_modules=[mlp1, layers.{5-3}]"},
        "parallel.fsdp_plan.apply_modules[1] (pattern \"layers.{5-3}\"): the range {5-3} is empty"},
       {{"features.recompute=true"},
        "features.recompute needs features.recompute_plan.apply_modules"},
       {{"features.recompute=true", "features.recompute_plan.apply_modules=[]"},
        "features.recompute needs"},
       {{"features.recompute=true", "features.recompute_plan.apply_modules=[a.{]"},
        "unclosed brace"},
       {{"features.recompute=true", "features.recompute_plan.apply_modules=[a.{*}]"}, ""},
       {{"features.enable_chunk_loss=true"}, ""},
       {{"features.enable_chunk_loss=true", "features.chunkloss_plan.apply_module=\"\""},
        "must not be empty"},
       {{"features.enable_dynamic_chunk_loss=true"}, "needs features.enable_chunk_loss: true"},
       {{"parallel.expert_parallel_size=2"}, "is 2, which needs parallel.ep_plan.apply_modules"}});
}

TEST(Validate, FaultsOfInactivePlansAreWarnings) {
  const LoadedConfig loaded = parse_all(minimal(), {"features.recompute_plan.apply_modules=[a.{]",
                                                    "parallel.ep_plan.apply_modules=[b.{5-3}]"});
  EXPECT_THAT(loaded.warnings,
              Contains(HasSubstr("unclosed brace; it has no effect while its switch is off")));
  EXPECT_THAT(loaded.warnings, Contains(HasSubstr("the range {5-3} is empty")));
}

TEST(Validate, Model) {
  check({{{"model.random_init=true", "training.load=x"},
          "model.random_init is true, but training.load names weights"},
         {{"model.random_init=true"}, ""},
         {{"model.model_id="}, "model.model_id is empty"},
         {{"model.attn_implementation=sdpa", "parallel.ulysses_parallel_size=2"},
          "needs flash_attention_2"}});
}

TEST(Validate, Batch) {
  check({{{"training.global_batch_size=3", "training.micro_batch_size=2"},
          "is 3, not a multiple of micro_batch_size 2"},
         {{"training.train_epochs=1", "training.train_iters=5"}, "are both given"},
         {{"training.train_epochs=1"}, ""}});
}

TEST(Validate, Saving) {
  EXPECT_THAT(parse_all(minimal(), {"training.save_interval=5"}).warnings,
              ElementsAre(HasSubstr("training.save names no folder")));
  EXPECT_THAT(parse_all(minimal(), {"training.save_interval=5", "training.save=out"}).warnings,
              IsEmpty());
  EXPECT_THAT(
      parse_all(minimal(), {"training.save_async=true", "training.save_format=hf"}).warnings,
      ElementsAre(HasSubstr("training.save_async has no effect")));
  EXPECT_THAT(parse_all(minimal(), {"training.save_async=true"}).warnings, IsEmpty());
  EXPECT_THAT(parse_all(minimal(), {"training.save_hf_layout=hf"}).warnings,
              ElementsAre(HasSubstr("training.save_hf_layout has no effect")));
  EXPECT_THAT(
      parse_all(minimal(), {"training.save_hf_layout=hf", "training.save_format=hf"}).warnings,
      IsEmpty());
}

TEST(Validate, WhatIsNotBuiltYetIsRefusedByName) {
  EXPECT_EQ(
      built_error({"training.load_rank0_and_broadcast=true"}),
      "override training.load_rank0_and_broadcast=true: training.load_rank0_and_broadcast true "
      "is not supported yet (here it must be false)");
  for (const char* text :
       {"parallel.ring_attention_size=2", "parallel.tensor_parallel_size=2",
        "parallel.ep_plan.dispatcher=mc2", "features.enable_chunk_mbs=true",
        "features.enable_ep_balance=true", "training.lora.enable=true",
        "training.quantization_plan.recipe_name=x", "model.mtp_num_layers=1",
        "training.optimizer=muon", "data.dataset_param.basic_parameters.streaming=true",
        "data.dataset_param.basic_parameters.packing=true", "tools.profile.enable=true",
        "tools.memory_profile.enable=true", "training.profile.enable=true",
        "parallel.recompute=true", "training.max_steps=5", "training.plugin=[some/package]"}) {
    EXPECT_THAT(built_error({text}), HasSubstr("is not supported yet")) << text;
  }
}

TEST(Validate, InertPlansOfWhatIsNotBuiltLoad) {
  EXPECT_EQ(built_error({"features.recompute_plan.apply_modules=[a.{*}]",
                         "features.chunkloss_plan.chunk_size=5", "training.lora.rank=4",
                         "tools.profile.static_param.with_cpu=true", "training.muon_momentum=0.9",
                         "parallel.ep_plan.apply_modules=[b]",
                         "training.plugin=[mindspeed_mm.fsdp.models.internvl3_5]"}),
            "");
}

}  // namespace
}  // namespace shardloom::config
