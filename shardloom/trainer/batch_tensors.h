// Batches of the data room as tensors.
#pragma once

#include "shardloom/data/batch.h"
#include "shardloom/models/model.h"

namespace shardloom::trainer {

// Takes the batch's arrays; no copy is made.
models::TensorMap to_tensors(data::Batch&& batch);

}  // namespace shardloom::trainer
