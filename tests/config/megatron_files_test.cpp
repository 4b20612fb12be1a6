// fsdp2_config.yaml, model.json and data.json: what each key gives, and each fault.
#include "tests/config/megatron_test_util.h"

namespace shardloom::config::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string fsdp2_error(const std::string& text) {
  return error_of([&] { parse_fsdp2_config(text, "f.yaml"); });
}
std::string model_error(const std::string& text) {
  return error_of([&] { parse_model_json(text, "m.json"); });
}
std::string data_error(const std::string& text) {
  return error_of([&] { parse_data_json(text, "d.json"); });
}

// ---- fsdp2_config.yaml

TEST(Fsdp2Config, HasTheReferencesDefaults) {
  const Fsdp2Config config = parse_fsdp2_config("sub_modules_to_wrap: [a]\n", "f.yaml");
  EXPECT_EQ(config.sharding_size, 1);
  EXPECT_TRUE(config.reshard_after_forward);
  EXPECT_TRUE(config.cast_forward_inputs);
  EXPECT_TRUE(config.use_reentrant);
  EXPECT_TRUE(config.reshard_local_experts);
  EXPECT_TRUE(config.pin_memory);
  EXPECT_FALSE(config.offload_to_cpu);
  EXPECT_EQ(config.param_dtype, std::nullopt);
  EXPECT_EQ(config.reduce_dtype, std::nullopt);
  EXPECT_EQ(config.output_dtype, std::nullopt);
  EXPECT_EQ(config.num_to_forward_prefetch, 0);
  EXPECT_EQ(config.num_to_backward_prefetch, 0);
  EXPECT_EQ(config.expert_parallel_size, 1);
  EXPECT_THAT(config.ignored_modules, IsEmpty());
  EXPECT_THAT(config.recompute_modules, IsEmpty());
  EXPECT_THAT(config.moe_modules, IsEmpty());
}

TEST(Fsdp2Config, ReadsAllKeys) {
  const Fsdp2Config config = parse_fsdp2_config(R"(sharding_size: 4
sub_modules_to_wrap: ["layers.{0-20,25,30-40}", head]
ignored_modules: [frozen]
reshard_after_forward: False
param_dtype: "bf16"
reduce_dtype: fp32
output_dtype: fp32
cast_forward_inputs: false
offload_to_cpu: true
pin_memory: false
num_to_forward_prefetch: 1
num_to_backward_prefetch: 2
recompute_modules:
use_reentrant: false
align_fsdp_param_groups: false
expert_parallel_size: 2
reshard_local_experts: false
moe_modules: [experts]
)",
                                                "f.yaml");
  EXPECT_EQ(config.sharding_size, 4);
  EXPECT_THAT(config.sub_modules_to_wrap, ElementsAre("layers.{0-20,25,30-40}", "head"));
  EXPECT_THAT(config.ignored_modules, ElementsAre("frozen"));
  EXPECT_FALSE(config.reshard_after_forward);
  EXPECT_EQ(config.param_dtype, "bf16");
  EXPECT_EQ(config.reduce_dtype, "fp32");
  EXPECT_EQ(config.output_dtype, "fp32");
  EXPECT_FALSE(config.cast_forward_inputs);
  EXPECT_TRUE(config.offload_to_cpu);
  EXPECT_FALSE(config.pin_memory);
  EXPECT_EQ(config.num_to_forward_prefetch, 1);
  EXPECT_EQ(config.num_to_backward_prefetch, 2);
  EXPECT_THAT(config.recompute_modules, IsEmpty());
  EXPECT_FALSE(config.use_reentrant);
  EXPECT_EQ(config.expert_parallel_size, 2);
  EXPECT_FALSE(config.reshard_local_experts);
  EXPECT_THAT(config.moe_modules, ElementsAre("experts"));
  EXPECT_EQ(config.sources.at("sub_modules_to_wrap[1]").str(), "f.yaml:2:49");
}

TEST(Fsdp2Config, ReadsTheThreeFormsOfShardingSize) {
  EXPECT_EQ(parse_fsdp2_config("sharding_size: null\n", "f").sharding_size, 1);
  EXPECT_EQ(parse_fsdp2_config("sharding_size: auto\n", "f").sharding_size, std::nullopt);
  EXPECT_EQ(parse_fsdp2_config("sharding_size: 8\n", "f").sharding_size, 8);
}

TEST(Fsdp2Config, NamesEachFault) {
  EXPECT_EQ(fsdp2_error("sub_module_to_wrap: []\n"),
            "f.yaml:1:1: unknown key sub_module_to_wrap (did you mean sub_modules_to_wrap?)");
  EXPECT_EQ(fsdp2_error("sharding_size: 0\nparam_dtype: float\n"),
            "f.yaml:1:16: sharding_size: must be >= 1 and <= 1000000, got 0\n"
            "f.yaml:2:14: param_dtype: \"float\" is not one of fp16, bf16, fp32, fp64");
  EXPECT_EQ(fsdp2_error("align_fsdp_param_groups: true\n"),
            "f.yaml:1:26: align_fsdp_param_groups: true is not supported yet (here it must be "
            "false)");
  EXPECT_EQ(fsdp2_error("moe_modules: experts\n"),
            "f.yaml:1:14: moe_modules: expected a list of text, got \"experts\"; write "
            "[experts]");
  EXPECT_EQ(fsdp2_error(""), "f.yaml: the file is empty");
  EXPECT_EQ(fsdp2_error("offload_to_cpu: true\noffload_to_cpu: false\n"),
            "f.yaml:2:1: duplicate key offload_to_cpu (first given on line 1)");
  // A key of the YAML path belongs to no section of this file.
  EXPECT_EQ(fsdp2_error("train_iters: 5\n"), "f.yaml:1:1: unknown key train_iters");
}

TEST(Fsdp2Config, NamesTheFlagOfAFileThatIsNotThere) {
  EXPECT_THAT(error_of([] { load_fsdp2_config("no/such.yaml"); }),
              testing::AllOf(HasSubstr("--fsdp2-config-path: cannot read the file"),
                             HasSubstr("no/such.yaml")));
}

// ---- model.json

TEST(ModelJson, ReadsThePublishedFile) {
  const ModelJson model = parse_model_json(R"({
    "model_id": "internvl",
    "init_from_hf_path": "./ckpt/hf_path/InternVL3_5-30B-A3B-Instruct",
    "img_context_token_id": 151671,
    "text_decoder": {"model_id": "qwen3lm", "num_layers": 999, "hidden_size": 999,
                     "num_attention_heads": 999, "max_position_embeddings": 9999999},
    "loss_cfg": {"loss_type": "per_sample_loss"},
    "patch": {"clip_grad_async": true, "scale_grad": true}
})",
                                           "m.json");
  EXPECT_EQ(model.model_id, "internvl");
  EXPECT_EQ(model.init_from_hf_path, "./ckpt/hf_path/InternVL3_5-30B-A3B-Instruct");
  EXPECT_EQ(model.img_context_token_id, 151671);
  EXPECT_EQ(model.loss_cfg.loss_type, "per_sample_loss");
  EXPECT_EQ(model.loss_cfg.compute_mode, "default");
  EXPECT_EQ(model.text_decoder.num_layers, 999);
  EXPECT_EQ(model.num_hidden_layers, std::nullopt);
}

TEST(ModelJson, NamesEachFault) {
  EXPECT_EQ(model_error(R"({"model_id": "x"})"), "m.json:1:1: init_from_hf_path is missing");
  EXPECT_EQ(model_error(R"({"model_id": "x",
 "init_from_hf_paht": "hf"})"),
            "m.json:1:1: init_from_hf_path is missing\n"
            "m.json:2:2: unknown key init_from_hf_paht (did you mean init_from_hf_path?)");
  EXPECT_EQ(model_error(R"({"model_id": "x", "init_from_hf_path": "hf",
 "loss_cfg": {"loss_type": "raw", "chunk": 4}})"),
            "m.json:2:28: loss_cfg.loss_type: \"raw\" is not one of default, per_sample_loss, "
            "per_token_loss, token_loss, square_loss\n"
            "m.json:2:35: unknown key loss_cfg.chunk");
}

TEST(ModelJson, IsJson) {
  const std::string hint =
      "; JSON has text in double quotes, one comma between two entries, none after the last, and "
      "no comments";
  EXPECT_EQ(model_error("{\"model_id\": \"x\",\n \"init_from_hf_path\": \"hf\" \"freeze\": []}"),
            "m.json:2:35: not valid JSON" + hint);
  EXPECT_EQ(model_error("{\"model_id\": \"x\", \"init_from_hf_path\": \"hf\",}"),
            "m.json:1:45: not valid JSON" + hint);
  EXPECT_EQ(model_error("{model_id: x, init_from_hf_path: hf}"),
            "m.json:1:2: not valid JSON" + hint);
  EXPECT_EQ(model_error(" \n"), "m.json: the file is empty");
}

// As many editors indent.
TEST(ModelJson, MayBeIndentedByTabs) {
  EXPECT_EQ(model_error("{\n\t\"model_id\":\t\"x\",\n\t\"init_from_hf_path\": \"hf\"\n}\n"), "");
  EXPECT_EQ(model_error("{\n\t\"model_id\": \"x\",\n\t\"init_from_hf_path\": 5\n}\n").substr(0, 13),
            "m.json:3:23: ");
}

// ---- data.json

std::string data_text(const std::string& dataset, const std::string& loader = "") {
  return "{\"dataset_param\": {\"dataset_type\": \"multimodal\",\n"
         "\"basic_parameters\": {\"data_path\": \"a.jsonl\", \"data_folder\": \"images\"}" +
         std::string(dataset.empty() ? "" : ",\n") + dataset + "},\n\"dataloader_param\": {" +
         loader + "}}";
}

std::string pipeline(const std::string& steps, const std::string& rest = "") {
  return data_text("\"preprocess_parameters\": {\"train_pipeline\": {\"image\": [\n" + steps +
                   "]}}" + rest);
}

constexpr const char* kPad =
    R"({"trans_type": "Pad2Square", "param": {"mean": [0.485, 0.456, 0.406]}},
)";
constexpr const char* kResize =
    R"({"trans_type": "Resize", "param": {"size": [448, 448], "interpolation": "BICUBIC", "antialias": null}},
)";
constexpr const char* kRest = R"({"trans_type": "ToTensor"},
{"trans_type": "norm_fun", "param": {"mean":[0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}})";

TEST(DataJson, ReadsOneSourceAndSeveral) {
  const DataJson one = parse_data_json(data_text(""), "d.json");
  ASSERT_EQ(one.dataset_param.basic_parameters.size(), 1u);
  EXPECT_EQ(one.dataset_param.basic_parameters[0].data_path, "a.jsonl");
  EXPECT_EQ(one.dataset_param.basic_parameters[0].data_folder, "images");
  EXPECT_EQ(one.dataset_param.basic_parameters[0].repeat_time, 1.0);

  const DataJson two = parse_data_json(
      R"({"dataset_param": {"dataset_type": "multimodal", "basic_parameters": [
      {"data_path": "a.jsonl", "repeat_time": 0.5}, {"data_path": "b.jsonl", "repeat_time": 3}]}})",
      "d.json");
  ASSERT_EQ(two.dataset_param.basic_parameters.size(), 2u);
  EXPECT_EQ(two.dataset_param.basic_parameters[0].repeat_time, 0.5);
  EXPECT_EQ(two.dataset_param.basic_parameters[1].data_path, "b.jsonl");
  EXPECT_EQ(two.dataset_param.basic_parameters[1].repeat_time, 3.0);
}

TEST(DataJson, AcceptsThePublishedPipeline) {
  EXPECT_EQ(data_error(pipeline(std::string(kPad) + kResize + kRest)), "");
  EXPECT_EQ(data_error(pipeline(std::string(kResize) + kRest, ", \"image_size\": 448")), "");
  EXPECT_EQ(data_error(pipeline(std::string(kResize) + kRest, ", \"dynamic_image_size\": false")),
            "");
}

TEST(DataJson, RefusesAPipelineThatGivesOtherPixels) {
  const std::string steps = "dataset_param.preprocess_parameters.train_pipeline.image";
  EXPECT_EQ(
      data_error(pipeline(std::string(kPad) + kResize + kRest, ", \"dynamic_image_size\": false")),
      "d.json:4:16: " + steps +
          "[0] (Pad2Square) pads pictures when dynamic_image_size is false, which is not "
          "supported; remove it, or set dynamic_image_size true and max_dynamic_patch 1");
  EXPECT_EQ(data_error(pipeline(std::string(kResize) + kRest, ", \"image_size\": 224")),
            "d.json:4:44: " + steps +
                "[0].param.size is [448, 448], but dataset_param.image_size is 224");
  const auto resize = [&](const std::string& param) {
    return data_error(pipeline(R"({"trans_type": "Resize", "param": {)" + param + "}},\n" + kRest));
  };
  EXPECT_EQ(resize(R"("size": [448, 224], "interpolation": "BICUBIC")"),
            "d.json:4:44: " + steps +
                "[0].param.size is [448, 224]; tiles are squares, write [448, 448]");
  EXPECT_EQ(
      resize(R"("size": [448], "interpolation": "BILINEAR")"),
      "d.json:4:68: " + steps + "[0].param.interpolation is BILINEAR; only BICUBIC is supported");
  EXPECT_THAT(
      resize(R"("size": [448])"),
      HasSubstr("[0].param.interpolation is not given, which means BILINEAR; only BICUBIC"));
  EXPECT_THAT(resize(R"("interpolation": "BICUBIC")"), HasSubstr("[0].param.size is missing"));
  EXPECT_EQ(data_error(pipeline(std::string(kResize) + R"({"trans_type": "ToTensor"},
{"trans_type": "norm_fun", "param": {"mean": [0.5, 0.5, 0.5], "std": [0.229, 0.224, 0.225]}})")),
            "d.json:6:46: " + steps +
                "[2].param.mean is [0.5, 0.5, 0.5]; only [0.485, 0.456, 0.406] is supported");
  EXPECT_THAT(data_error(pipeline(std::string(kResize) + R"({"trans_type": "ToTensor"},
{"trans_type": "norm_fun", "param": {"mean": [0.485, 0.456, 0.406]}})")),
              HasSubstr("[2].param.std is missing; only [0.229, 0.224, 0.225] is supported"));
  EXPECT_EQ(data_error(pipeline(kRest)),
            "d.json:3:55: " + steps +
                " is ToTensor, norm_fun; only Pad2Square, Resize, ToTensor, norm_fun is supported, "
                "with or without Pad2Square");
}

TEST(DataJson, NamesEachFault) {
  EXPECT_EQ(data_error("{}"),
            "d.json:1:1: dataset_param.dataset_type is missing\n"
            "d.json:1:1: dataset_param.basic_parameters is missing");
  EXPECT_EQ(data_error(R"({"dataset_param": {"dataset_type": "x", "basic_parameters":
 {"data_path": "a", "repeat_time": 1e30}}})"),
            "d.json:2:36: dataset_param.basic_parameters.repeat_time: must be > 0 and <= 1000000, "
            "got 1e+30");
  EXPECT_EQ(
      data_error(R"({"dataset_param": {"dataset_type": "multimodal", "basic_parameters": []}})"),
      "d.json:1:70: dataset_param.basic_parameters is empty");
  EXPECT_THAT(
      data_error(R"({"dataset_param": {"dataset_type": "x", "basic_parameters": {"path": "a"}}})"),
      testing::AllOf(HasSubstr("dataset_param.basic_parameters.data_path is missing"),
                     HasSubstr("unknown key dataset_param.basic_parameters.path")));
  EXPECT_EQ(data_error(data_text("\"template_name\": \"internlm2\"")),
            "d.json:3:18: dataset_param.template_name: \"internlm2\" is not one of internvl2_5");
  EXPECT_EQ(data_error(data_text("\"use_text_processer\": false")),
            "d.json:3:23: dataset_param.use_text_processer is false, which is not supported; set "
            "it to true");
  EXPECT_EQ(data_error(data_text("\"tokenizer_config\": {\"add_eos_token\": true}")),
            "d.json:3:39: dataset_param.tokenizer_config.add_eos_token is true, which is not "
            "supported: the template ends each turn; set it to false");
  EXPECT_EQ(data_error(data_text("\"max_dynamic_patches\": 6")),
            "d.json:3:1: unknown key dataset_param.max_dynamic_patches (did you mean "
            "max_dynamic_patch?)");
  EXPECT_EQ(data_error(data_text("", "\"sampler_type\": \"Other\"")),
            "d.json:3:38: dataloader_param.sampler_type: \"Other\" is not one of "
            "BaseRandomBatchSampler");
  EXPECT_EQ(data_error(data_text("", "\"shuffle\": \"true\"")),
            "d.json:3:33: dataloader_param.shuffle: expected true or false, got the quoted text "
            "\"true\"; "
            "remove the quotes");
  EXPECT_THAT(data_error("{\"dataset_param\": {"), HasSubstr("d.json:"));
}

}  // namespace
}  // namespace shardloom::config::megatron
