// Weights between HF folders and parameters, tensor by tensor: never two full copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/dtype.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/nn/module.h"
#include "shardloom/nn/weight_source.h"

namespace shardloom::checkpoint {

// Tensor type of a file type; throws CheckpointError naming `place` for types that no parameter can
// be filled from.
at::ScalarType scalar_type(DType dtype, const std::string& place);

using SourcesOfLayout = std::function<std::vector<nn::WeightSource>(nn::Layout)>;

struct HfLoadOptions {
  bool strict = true;  // missing and unexpected keys are errors; else warnings, and missing
                       // parameters keep their values
  bool show_progress = true;
  std::function<bool(const std::string&)> may_ignore;  // file keys that are no surprise
};

// Fills `parameters` (any floating dtype; values are converted) from the folder, in the layout
// whose keys it has. Every key and shape is checked before the first byte of data is read. Throws
// CheckpointError that lists all missing, unexpected and misshapen tensors.
void load_hf_weights(const HfFolder& folder,
                     const SourcesOfLayout& sources,
                     const std::vector<nn::NamedTensor>& parameters,
                     const HfLoadOptions& options);

struct HfExportOptions {
  DType dtype = DType::kBF16;
  std::string config_json;                // written as config.json
  std::filesystem::path copy_files_from;  // tokenizer and other small files
  bool replace = false;
};

// Writes an HF folder from full parameters (name -> tensor in `parameters`).
void export_hf_weights(const std::filesystem::path& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::vector<nn::NamedTensor>& parameters,
                       const HfExportOptions& options);

}  // namespace shardloom::checkpoint
