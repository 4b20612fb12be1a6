// What is saved of a run: tensors and plain values with their places in the nested state.
#pragma once

#include <vector>

#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/dtype.h"
#include "shardloom/checkpoint/state_names.h"
#include "shardloom/distributed/sharded_tensor.h"

namespace shardloom::checkpoint {

struct StateTensor {
  StateKey key;
  distributed::ShardedTensor tensor;  // the rows that this rank holds; key.name is its name
  DType dtype = DType::kF32;          // in the file; values are converted
};

struct StateValue {
  StateKey key;
  dcp::PythonValue value;
};

struct CheckpointState {
  std::vector<StateTensor> tensors;
  std::vector<StateValue> values;  // of the first rank alone; those of others are not looked at
};

}  // namespace shardloom::checkpoint
