// The inputs of the Megatron-style path that describe the same training as a configuration of the
// YAML path: model.json, data.json, fsdp2_config.yaml and the flags of pretrain_transformers.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "shardloom/config/load.h"

namespace shardloom::study {

inline constexpr const char* kModelJson = "model.json";
inline constexpr const char* kDataJson = "data.json";
inline constexpr const char* kFsdp2Yaml = "fsdp2_config.yaml";

struct BaselineInputs {
  std::vector<std::pair<std::string, std::string>> files;  // name in the folder, content
  std::vector<std::string> settings;                       // flags that name no file

  // All flags of the program, but for --nproc: the files are in `folder`, the metrics are meant
  // for folder/metrics.
  std::vector<std::string> flags(const std::filesystem::path& folder) const;
};

// `config` with its sizes resolved.
BaselineInputs baseline_inputs(const config::TrainConfig& config);

// Reads the inputs back as the program will, on `nproc` processes and from a temporary folder, and
// compares: a line for each key whose value changes the training and is not the one in `yaml`
// (resolved), or a fault. Throws ConfigError when there is no place for temporary files.
std::vector<std::string> baseline_faults(const BaselineInputs& inputs,
                                         const config::LoadedConfig& yaml,
                                         int nproc);

}  // namespace shardloom::study
