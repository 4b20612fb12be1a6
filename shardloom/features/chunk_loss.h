// The output layer and the loss in chunks of rows, so that the logits of one chunk are alive at a
// time (ops/chunked_cross_entropy.h).
#pragma once

#include <string>

#include "shardloom/nn/module.h"

namespace shardloom::features {

// The module makes its loss from `rows` rows (tokens with a target) at a time. Throws ConfigError
// when it is no nn::LossHead or `rows` is not positive.
void chunk_loss(nn::Module& module, const std::string& name, int64_t rows);

// Rows of a chunk for chunkloss_plan.total_chunk_size: the largest power of two up to it.
int64_t dynamic_chunk_rows(int64_t total_chunk_size);

}  // namespace shardloom::features
