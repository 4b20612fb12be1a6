// Weights between HF folders and the parameters of one or several ranks, tensor by tensor: never
// two full copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/checkpoint/dtype.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/checkpoint/hf_keys.h"
#include "shardloom/distributed/sharded_tensor.h"
#include "shardloom/nn/module.h"

namespace shardloom::checkpoint {

// Tensor type of a file type; throws CheckpointError naming `place` for types that no parameter can
// be filled from.
at::ScalarType scalar_type(DType dtype, const std::string& place);

// Nothing without problems. With `strict`, and for tensors of another shape always, a
// CheckpointError with all of them; else, with `verbose`, a warning.
void report_key_problems(const std::string& place,
                         const KeyProblems& problems,
                         bool strict,
                         bool verbose);

struct HfLoadOptions {
  bool strict = true;   // missing and unexpected keys are errors; else warnings, and missing
                        // parameters keep their values
  bool verbose = true;  // progress and warnings; on one rank
  std::function<bool(const std::string&)> may_ignore;  // file keys that are no surprise
};

// Parameters that this process holds whole.
std::vector<distributed::ShardedTensor> whole_tensors(
    const std::vector<nn::NamedTensor>& parameters);

// Fills the local rows of `parameters` (any floating dtype; values are converted) from the folder,
// in the layout whose keys it has. Not collective: every rank reads the bytes of its own rows and
// no others (of transposed pieces, the pages that these lie on). Every key and shape is checked,
// against the whole tensors, before the first byte of data is read. Throws CheckpointError that
// lists all missing, unexpected and misshapen tensors.
void load_hf_weights(const HfFolder& folder,
                     const SourcesOfLayout& sources,
                     const std::vector<distributed::ShardedTensor>& parameters,
                     const HfLoadOptions& options);

struct HfExportOptions {
  DType dtype = DType::kBF16;
  std::string config_json;                // written as config.json
  std::filesystem::path copy_files_from;  // tokenizer and other small files
  bool other_layout = false;              // than that folder's, as in HfWriteOptions
  bool replace = false;
  // All ranks of the call; the first of them writes. Null: this process by itself.
  std::shared_ptr<distributed::Group> group;
};

// Writes an HF folder from `parameters`. Collective over options.group, which holds the ranks of
// every parameter's own group: rows are gathered block by block, no rank ever holds more than one
// tensor of the file. Returns on every rank when the folder is in place. Throws CheckpointError on
// the rank that writes; the others see a DistributedError once that rank has left its groups.
void export_hf_weights(const std::filesystem::path& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::vector<distributed::ShardedTensor>& parameters,
                       const HfExportOptions& options);

}  // namespace shardloom::checkpoint
