// CFG-02 and whole files.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

LoadedConfig load_case(const std::string& name) {
  return load_train_config(data_path("cfg_02/" + name), {}, FeatureCheck::kAll);
}

std::string case_error(const std::string& name) {
  const std::string prefix = data_path("cfg_02/" + name) + ":";
  const std::string error = error_of([&] { load_case(name); });
  return error.starts_with(prefix) ? error.substr(prefix.size()) : error;
}

struct Case {
  const char* file;
  const char* error;  // "" when the file is good
};

// One row for each file of expected.json; what good files hold is checked below.
const Case kCases[] = {
    {"lr_1e-5.yaml", ""},
    {"dup_key.yaml", "34:3: duplicate key training.train_iters (first given on line 33)"},
    {"dup_section.yaml", "40:1: duplicate section training (first given on line 30)"},
    {"tab.yaml", "31:1: tab in indentation; YAML allows only spaces there"},
    {"bom_crlf.yaml", ""},
    {"bool_yes.yaml", "16:14: features.recompute: expected true or false, got \"yes\"; write true"},
    {"int_as_float.yaml", ""},
    {"negative.yaml", "36:21: training.micro_batch_size: must be >= 1 and <= 1000000, got -1"},
    {"zero_iters.yaml", ""},
    {"warmup_gt_total.yaml", "34:20: training.lr_warmup_iters is 3000, more than train_iters 2000"},
    {"nan_lr.yaml", "32:7: training.lr: .nan is not finite"},
    {"null_path.yaml", "28:7: data.dataset_param.basic_parameters.dataset is empty; give a value"},
    {"list_for_str.yaml", ""},
    {"empty.yaml", " the configuration is empty"},
    {"merge_key.yaml",
     "1:1: unknown section x; all its keys would be lost (sections: parallel, model, data, "
     "features, training, tools; "
     "blocks for anchors are named x-...)"},
    {"env_like.yaml", ""},
};

TEST(Load, EveryFileOfTheCase) {
  const auto expected = nlohmann::json::parse(std::ifstream(data_path("cfg_02/expected.json")));
  for (const Case& c : kCases) {
    ASSERT_TRUE(expected.contains(c.file)) << c.file;
    EXPECT_EQ(case_error(c.file), c.error) << c.file;
  }
  EXPECT_THAT(case_error("flow_brace.yaml"),
              AllOf(StartsWith("10:"), HasSubstr("quote the pattern")));
  EXPECT_EQ(expected.size(), std::size(kCases) + 1);
}

TEST(Load, ValuesOfTheGoodFiles) {
  EXPECT_EQ(load_case("lr_1e-5.yaml").config.training.lr, 0.00001);
  EXPECT_EQ(load_case("int_as_float.yaml").config.training.train_iters, 2000);
  EXPECT_EQ(load_case("zero_iters.yaml").config.training.train_iters, 0);
  EXPECT_THAT(load_case("list_for_str.yaml").config.data.dataset_param.basic_parameters.dataset,
              ElementsAre("./a.jsonl", "./b.jsonl"));
  EXPECT_EQ(load_case("bom_crlf.yaml").dump(),
            load_train_config(data_path("cfg_01/base.yaml"), {}, FeatureCheck::kAll).dump());
}

TEST(Load, MergeKeyWithAPlaceForTheAnchor) {
  std::ifstream file(data_path("cfg_02/merge_key.yaml"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  text.replace(0, 2, "x-x:");
  EXPECT_EQ(parse_all(text).config.training.seed, 42);
}

TEST(Load, EnvironmentNamesAreLiteral) {
  const LoadedConfig loaded = load_case("env_like.yaml");
  EXPECT_EQ(loaded.config.model.model_name_or_path, "${MODEL_DIR}");
  EXPECT_THAT(check_paths(loaded),
              Contains(AllOf(HasSubstr("env_like.yaml:21:23: model.model_name_or_path: the folder"),
                             HasSubstr("does not exist; $NAME and ~ are taken literally"))));
}

TEST(Load, TrajectoryWithWhatIsBuilt) {
  const LoadedConfig loaded = load_train_config(data_path("trajectory.yaml"));
  const TrainConfig& config = loaded.config;
  EXPECT_EQ(config.model.model_name_or_path, "fixtures/tiny-moe");
  EXPECT_FALSE(config.model.num_hidden_layers.has_value());
  EXPECT_FALSE(config.parallel.fully_shard_parallel_size.has_value());
  EXPECT_EQ(config.parallel.fsdp_plan.param_dtype, "fp32");
  EXPECT_EQ(config.data.dataset_param.pad_to, "cutoff_len");
  EXPECT_EQ(config.data.dataset_param.max_dynamic_patch, 1);
  EXPECT_EQ(config.features.loss_cfg.loss_type, "per_sample_loss");
  EXPECT_EQ(config.features.chunkloss_plan.chunk_size, 64);
  EXPECT_EQ(config.training.lr, 1e-3);
  EXPECT_EQ(config.training.adam_eps, 1e-8);
  EXPECT_EQ(config.training.metrics_dir, "out/trajectory");
  EXPECT_EQ(config.training.lr_decay_style, "cosine");
  EXPECT_EQ(loaded.warnings.size(), 2u);  // two plans beside switches that are off
}

TEST(Load, DefaultsOfKeysTheReferenceRequires) {
  const DataloaderParam loader = with({}).data.dataloader_param;
  EXPECT_EQ(loader.dataloader_mode, "sampler");
  EXPECT_EQ(loader.sampler_type, "BaseRandomBatchSampler");
  EXPECT_FALSE(loader.shuffle);
  EXPECT_TRUE(loader.drop_last);
  EXPECT_FALSE(loader.pin_memory);
}

TEST(Load, PublishedExampleOfARelative) {
  const std::string path = data_path("published_qwen3vl.yaml");
  const TrainConfig config = load_train_config(path, {}, FeatureCheck::kAll).config;
  EXPECT_EQ(config.model.model_name_or_path, "./ckpt/hf_path/Qwen3-VL-30B-A3B-Instruct");
  EXPECT_EQ(config.data.dataset_param.attr.role_tag, "role");
  EXPECT_EQ(config.training.weight_decay, 0.0);
  EXPECT_TRUE(config.tools.profile.static_param.with_cpu);

  std::istringstream errors(error_of([&] { load_train_config(path); }));
  int count = 0;
  for (std::string line; std::getline(errors, line); ++count)
    EXPECT_THAT(line, HasSubstr("is not supported yet"));
  EXPECT_GT(count, 0);
}

TEST(Load, PublishedPresetWithAllFeatures) {
  const std::string path = data_path("published_internvl3_5.yaml");
  const LoadedConfig loaded = load_train_config(path, {}, FeatureCheck::kAll);
  EXPECT_THAT(loaded.warnings, IsEmpty());
  EXPECT_EQ(loaded.config.data.dataset_param.preprocess_parameters.model_name_or_path,
            "./ckpt/InternVL3_5-30B-A3B-Instruct");
  EXPECT_EQ(loaded.config.features.activation_offload_plan.apply_modules->size(), 2u);
}

TEST(Load, PathsThatAreMissingNameTheKey) {
  const LoadedConfig loaded = parse_all(
      minimal("  load: /no/such\n  plugin: [mindspeed_mm/fsdp/models/internvl3_5, x.so]\n"),
      {"data.dataset_param.basic_parameters.dataset_dir=/dev/null"});
  const std::vector<std::string> problems = check_paths(loaded);
  EXPECT_THAT(problems,
              Contains(AllOf(StartsWith("run.yaml:3:23: model.model_name_or_path: the folder /"),
                             HasSubstr("/hf does not exist"))));
  EXPECT_THAT(problems,
              Contains(StartsWith(
                  "run.yaml:8:16: data.dataset_param.basic_parameters.dataset[0]: the file /")));
  EXPECT_THAT(problems,
              Contains("run.yaml:11:9: training.load: the folder /no/such does not exist"));
  EXPECT_THAT(problems, Contains(StartsWith("run.yaml:12:50: training.plugin[1]: the file /")));
  EXPECT_THAT(problems, Contains(HasSubstr("dataset_dir: /dev/null is not a folder")));
  EXPECT_EQ(problems.size(), 5u);
}

TEST(Load, NamesOfAHubAreNotFolders) {
  const auto problems = [](const std::string& path) {
    return check_paths(parse_all(minimal(), {"model.model_name_or_path=" + path}));
  };
  EXPECT_THAT(problems("OpenGVLab/InternVL3_5-1B"), Contains(HasSubstr("nothing is downloaded")));
  EXPECT_THAT(problems("./models/x"), Not(Contains(HasSubstr("nothing is downloaded"))));
}

TEST(Load, PathsThatExist) {
  const std::string folder = std::string(SHARDLOOM_SOURCE_DIR) + "/examples/tiny/model";
  const LoadedConfig loaded = parse_all(
      minimal(), {"model.model_name_or_path=" + folder,
                  "data.dataset_param.basic_parameters.dataset=" + data_path("trajectory.yaml")});
  EXPECT_THAT(check_paths(loaded), IsEmpty());
}

TEST(Load, AModelFolderWithoutConfigJson) {
  const LoadedConfig loaded =
      parse_all(minimal(), {"model.model_name_or_path=" + std::string(SHARDLOOM_TEST_DATA)});
  EXPECT_THAT(check_paths(loaded), testing::Contains(HasSubstr("has no config.json")));
}

TEST(Load, AFileThatIsNotThere) {
  EXPECT_THAT(error_of([] { load_train_config("/no/such.yaml"); }), HasSubstr("/no/such.yaml"));
}

TEST(Load, WhatIsNoFileOfAConfiguration) {
  const auto error = [](const std::string& path) {
    return error_of([&] { load_train_config(path); });
  };
  EXPECT_THAT(error("training.lr=1"), HasSubstr("the configuration stands first"));
  EXPECT_THAT(error("/tmp"), HasSubstr("is a folder"));
  EXPECT_THAT(error("/dev/zero"), HasSubstr("a pipe or a device"));
  const std::string path = ::testing::TempDir() + "/huge.yaml";
  std::ofstream(path) << std::string(2 << 20, '#');
  EXPECT_THAT(error(path), HasSubstr("2.0 MiB, too large for a configuration"));
}

TEST(Load, ValidationWithoutDataWarns) {
  EXPECT_THAT(parse_all(minimal("  val_interval: 5\n")).warnings,
              ElementsAre(HasSubstr("no data.val_dataset_param")));
}

// One fault, one message: the value that was refused is not checked further.
TEST(Load, ARefusedValueIsToldOnce) {
  const std::string error = error_of([] {
    parse_train_config(minimal(), "run.yaml", {"parallel.fsdp_plan.param_dtype=bfloat16"});
  });
  EXPECT_THAT(error, HasSubstr("write bf16"));
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(Load, DevicesThatAreNotBuiltAreRefused) {
  const auto error = [](const char* device) {
    return error_of([&] {
      parse_train_config(minimal(), "run.yaml", {fmt::format("training.device={}", device)});
    });
  };
  EXPECT_THAT(error("cuda"), HasSubstr("training.device cuda is not supported yet"));
  EXPECT_EQ(error("cpu"), "");
}

TEST(Load, ADumpLoadsBackAsTheSame) {
  for (const char* name :
       {"trajectory.yaml", "published_qwen3vl.yaml", "published_internvl3_5.yaml"}) {
    const LoadedConfig first = load_train_config(data_path(name), {}, FeatureCheck::kAll);
    EXPECT_EQ(parse_all(first.dump()).dump(), first.dump()) << name;
  }
}

TEST(Load, ADumpKeepsListsOfSections) {
  const LoadedConfig first =
      parse_all(minimal(), {"training.lr_scaling_plan=[{match: \"a.*{2}\", scale: 0.5}]"});
  const LoadedConfig second = parse_all(first.dump());
  ASSERT_EQ(second.config.training.lr_scaling_plan->size(), 1u);
  EXPECT_EQ(second.config.training.lr_scaling_plan->at(0).match, "a.*{2}");
  EXPECT_EQ(second.config.training.lr_scaling_plan->at(0).scale, 0.5);
}

TEST(Load, ExplainNamesTheSources) {
  const std::string text = parse_all(minimal("  lr: 1e-3\n"), {"training.seed=5"}).dump(true);
  EXPECT_THAT(text, HasSubstr("  lr: 0.001  # run.yaml:11:7\n"));
  EXPECT_THAT(text, HasSubstr("  seed: 5  # override training.seed=5\n"));
  EXPECT_THAT(text, HasSubstr("  lr_min: 0.0  # default\n"));
  EXPECT_THAT(text, HasSubstr("    dataset_type: internvl3_5  # run.yaml:6:19\n"));
}

}  // namespace
}  // namespace shardloom::config
