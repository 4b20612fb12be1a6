// data.json of the Megatron-style path: files, picture pipeline, tiles, order. Member names are the
// keys; unknown keys are errors, and so is a pipeline that the data sets here do not have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/config/schema.h"

namespace shardloom::config::megatron {

struct DataSource {
  std::string data_path;     // required; JSONL file
  std::string data_folder;   // image root; empty: the working folder
  double repeat_time = 1.0;  // below 1 takes that part from the start, above 1 repeats the list
};

struct TransformParam {
  std::optional<std::vector<double>> mean;
  std::optional<std::vector<double>> std_;  // key "std"
  std::optional<std::vector<int64_t>> size;
  std::optional<std::string> interpolation;
  std::optional<bool> antialias;
};

struct ImageTransform {
  std::string trans_type;
  TransformParam param;
};

struct TrainPipeline {
  std::vector<ImageTransform> image;  // empty: the one that the data set has
};

struct MmPreprocessParameters {
  std::string image_reader_type = "torchvision";
  TrainPipeline train_pipeline;
};

struct TokenizerConfig {
  std::optional<std::string> hub_backend;
  std::optional<std::string> autotokenizer_name;
  std::optional<std::string> from_pretrained;  // tokenizer folder; null: the model's folder
  bool add_eos_token = false;
  bool use_fast = false;
};

struct MmDatasetParam {
  std::string dataset_type;                  // required; multimodal, or a registry key
  std::vector<DataSource> basic_parameters;  // required; one section or a list of them
  MmPreprocessParameters preprocess_parameters;
  TokenizerConfig tokenizer_config;
  bool use_text_processer = true;
  std::string template_name = "internvl2_5";
  std::optional<int64_t> patch_size;  // null: the model's, as the two below
  std::optional<int64_t> image_size;
  std::optional<double> down_sample_ratio;
  bool group_by_length = true;  // pad to the longest of the batch; false: to the sequence length
  bool dynamic_image_size = true;
  bool use_thumbnail = true;
  int64_t min_dynamic_patch = 1;
  int64_t max_dynamic_patch = 12;
  std::optional<int64_t> min_num_frame;
  std::optional<int64_t> max_num_frame;
  std::optional<std::string> sampling_method;
  std::string on_bad_sample = "stop";  // stop | skip
};

struct MmCollateParam {
  std::optional<std::string> model_name;
  std::optional<int64_t> pad_id;  // without effect: masks come from lengths
};

struct MmDataloaderParam {
  std::string dataloader_mode = "sampler";
  std::string sampler_type = "BaseRandomBatchSampler";
  bool shuffle = false;
  std::string shuffle_seed = "training";  // training | epoch
  bool drop_last = true;
  bool pin_memory = false;
  std::optional<int64_t> num_workers;  // null: --num-workers
  MmCollateParam collate_param;
};

struct DataJson {
  MmDatasetParam dataset_param;
  MmDataloaderParam dataloader_param;

  Sources sources;  // where each given value stands, by key path
};

// Throws one ConfigError with a line "file:line:column: message" for each fault.
DataJson load_data_json(const std::filesystem::path& path);
// The same from text; `origin` names it in places.
DataJson parse_data_json(std::string_view text, const std::string& origin);

}  // namespace shardloom::config::megatron
