#include "shardloom/nn/attention.h"

#include "shardloom/ops/attention.h"

namespace shardloom::nn {

const ops::RopeTable& RopeCache::table(int64_t length, c10::Device device) {
  if (!table_.cos.defined() || table_.cos.size(0) < length || table_.cos.device() != device) {
    table_ = ops::make_rope_table(length, head_dim_, theta_);
    table_.cos = table_.cos.to(device);
    table_.sin = table_.sin.to(device);
  }
  return table_;
}

at::Tensor Attention::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (rope_ == nullptr) return ops::attention(q, k, v, causal_);
  const ops::RopeTable& table = rope_->table(q.size(1), q.device());
  return ops::attention(ops::apply_rope(q, table), ops::apply_rope(k, table), v, causal_);
}

}  // namespace shardloom::nn
