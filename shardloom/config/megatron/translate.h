// The inputs of the Megatron-style path as the configuration of the YAML path: flags,
// fsdp2_config.yaml, model.json and data.json become one TrainConfig, so that both paths train with
// the same code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardloom/config/load.h"
#include "shardloom/config/megatron/arguments.h"
#include "shardloom/config/megatron/data_json.h"
#include "shardloom/config/megatron/fsdp2_config.h"
#include "shardloom/config/megatron/model_json.h"

namespace shardloom::config::megatron {

struct MegatronConfig {
  Arguments args;
  Fsdp2Config fsdp2;
  ModelJson model;
  DataJson data;
  // What the four say, in the keys of the YAML path; its sources name the flag or the place in a
  // file. basic_parameters.dataset and dataset_dir are those of the first data source: `data` has
  // the others and the repetitions.
  LoadedConfig loaded;
};

// Reads the flags and the files they name, checks and translates all. Throws one ConfigError with a
// line "place: message" for each fault. With --help nothing but args.help is filled.
MegatronConfig load_megatron_config(const std::vector<std::string>& args);

// Files and folders of all data sources but the first, whose are in `loaded`, that are not there,
// as "place: message".
std::vector<std::string> check_further_sources(const MegatronConfig& config);

// What the model's own files say (config.json, tokenizer), to be held against data.json and
// model.json.
struct ModelSizes {
  int64_t image_size = 0;  // side of a tile in pixels
  int64_t patch_size = 0;
  double downsample_ratio = 0.0;
};

// Sizes in data.json that are not the model's, as "place: message".
std::vector<std::string> check_model_sizes(const MegatronConfig& config, const ModelSizes& model);

}  // namespace shardloom::config::megatron
