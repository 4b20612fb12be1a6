// The core of an attention layer as a module of its own, without parameters, so that wrappers on it
// see whole heads of queries, keys and values before positions are applied.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "shardloom/nn/module.h"
#include "shardloom/ops/rope.h"

namespace shardloom::nn {

// Rotary tables that grow to the longest sequence seen; fp32 whatever the model's type. Shared by
// the layers of a model.
class RopeCache {
 public:
  RopeCache(int64_t head_dim, double theta) : head_dim_(head_dim), theta_(theta) {}
  const ops::RopeTable& table(int64_t length, c10::Device device);

 private:
  int64_t head_dim_;
  double theta_;
  ops::RopeTable table_;
};

// Rotates q and k (when there is a rope), then ops::attention. q [B, S, heads, d], k and v [B, S,
// kv_heads, d] -> [B, S, heads, d].
class Attention : public Callable<Attention> {
 public:
  explicit Attention(bool causal, std::shared_ptr<RopeCache> rope = nullptr)
      : causal_(causal), rope_(std::move(rope)) {}
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

 private:
  bool causal_;
  std::shared_ptr<RopeCache> rope_;
};

}  // namespace shardloom::nn
