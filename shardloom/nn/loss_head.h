// The output layer of a language model, with the loss inside its own call: the logits need not
// leave it, and a wrapper that gathers the weight around the call covers both.
#pragma once

#include "shardloom/nn/layers.h"

namespace shardloom::nn {

// One entry a row. Not a tensor of the call (call.h), so that wrappers do not cast the weights.
struct LossRows {
  at::Tensor targets;  // [N] int64
  at::Tensor weights;  // [N] fp32
};

class LossHead : public Linear {
 public:
  using Linear::Linear;

  // sum of weight * cross entropy over the rows of hidden [N, in], an fp32 scalar; 0 for N = 0.
  at::Tensor loss(const at::Tensor& hidden, const LossRows& rows);
  // Rows whose logits are alive at a time; 0: all.
  void set_chunk_rows(int64_t rows) { chunk_rows_ = rows; }
  int64_t chunk_rows() const { return chunk_rows_; }

 private:
  at::Tensor forward_loss(const at::Tensor& hidden, const LossRows& rows);

  int64_t chunk_rows_ = 0;
};

}  // namespace shardloom::nn
