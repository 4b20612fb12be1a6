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
  std::vector<std::string> flags;                          // of the program, but for --nproc
};

// `config` with its sizes resolved. The files are meant for `folder`, the metrics for
// folder/metrics.
BaselineInputs baseline_inputs(const config::TrainConfig& config,
                               const std::filesystem::path& folder);

// Reads the inputs back as the program will, on `nproc` processes, and compares: a line for each
// key whose value changes the training and is not the one in `yaml` (resolved), or a fault.
// `folder` holds the files.
std::vector<std::string> baseline_faults(const BaselineInputs& inputs,
                                         const config::LoadedConfig& yaml,
                                         int nproc);

}  // namespace shardloom::study
