// Which tensors of an HF folder a model needs, and what does not fit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/nn/weight_source.h"

namespace shardloom::checkpoint {

using SourcesOfLayout = std::function<std::vector<nn::WeightSource>(nn::Layout)>;

// The layout of which the folder has most keys.
nn::Layout choose_layout(const HfFolder& folder, const SourcesOfLayout& sources);

// The layout in which a model is exported that was read in layout `own`: "auto" keeps it,
// "remote_code" and "hf" change it where it is of the other kind. InternalError for other names.
nn::Layout export_layout(const std::string& name, nn::Layout own);

// One line for each tensor.
struct KeyProblems {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> misshapen;
  size_t wanted = 0;  // names that were looked for
};

// Compares names and shapes; `may_ignore`, if any, knows the names that are no surprise.
KeyProblems check_keys(const HfFolder& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::function<bool(const std::string&)>& may_ignore);

// "PLACE: the weights do not fit the model" with all lists, long ones shortened; empty when there
// are no problems.
std::string problems_text(const std::string& place, const KeyProblems& problems);

}  // namespace shardloom::checkpoint
