#include "shardloom/nn/loss_head.h"

#include "shardloom/ops/chunked_cross_entropy.h"
#include "shardloom/ops/cross_entropy.h"

namespace shardloom::nn {

at::Tensor LossHead::loss(const at::Tensor& hidden, const LossRows& rows) {
  return call_wrapped([this](const at::Tensor& h, const LossRows& r) { return forward_loss(h, r); },
                      hidden, rows);
}

at::Tensor LossHead::forward_loss(const at::Tensor& hidden, const LossRows& rows) {
  return chunk_rows_ > 0 ? ops::chunked_cross_entropy(hidden, weight, bias, rows.targets,
                                                      rows.weights, chunk_rows_)
                         : ops::weighted_cross_entropy(forward(hidden), rows.targets, rows.weights);
}

}  // namespace shardloom::nn
