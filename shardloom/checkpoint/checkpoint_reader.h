// From a DCP checkpoint into the rows that a rank holds, whatever ranks wrote it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/dtype.h"
#include "shardloom/checkpoint/hf_keys.h"
#include "shardloom/distributed/sharded_tensor.h"

namespace shardloom::checkpoint {

// The part of the whole tensor that `local` is.
dcp::Box rows_box(const distributed::ShardedTensor& tensor);

// Types of saved states: those of weights, and whole numbers; InternalError for others.
at::ScalarType scalar_type_of_state(DType dtype);
DType dtype_of_state(at::ScalarType type);

struct WantedTensor {
  std::string name;  // in the checkpoint
  distributed::ShardedTensor target;
};

// Missing and misshapen ones; those of a type that cannot be converted are a CheckpointError.
KeyProblems check_wanted(const dcp::Reader& reader, const std::vector<WantedTensor>& wanted);

// Fills the local rows of those that are in the checkpoint; floating types are converted. Reads the
// bytes of these rows, in as many threads as torch computes with.
void read_wanted(const dcp::Reader& reader, const std::vector<WantedTensor>& wanted);

struct DcpLoadOptions {
  bool strict = true;   // missing and unexpected keys are errors; else warnings
  bool verbose = true;  // one rank tells what is found
  std::function<bool(const std::string&)> may_ignore;  // names that are no surprise
};

// The weights. Not collective. The names are those of the parameters, with "model." in front once
// or twice (state_names.h).
void load_dcp_weights(const dcp::Reader& reader,
                      const std::vector<distributed::ShardedTensor>& parameters,
                      const DcpLoadOptions& options);

}  // namespace shardloom::checkpoint
