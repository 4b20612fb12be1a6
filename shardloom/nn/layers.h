// The few layers that models are made of. Weights are allocated uninitialised with the given
// options (CPU, device or meta).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "shardloom/nn/module.h"

namespace shardloom::nn {

// y = x W^T + b; weight [out, in], bias [out]. x [..., in] -> [..., out].
class Linear : public Callable<Linear> {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
  at::Tensor bias;  // undefined without bias
};

// weight [rows, dim]; ids [...] int64 -> [..., dim].
class Embedding : public Callable<Embedding> {
 public:
  Embedding(int64_t rows, int64_t dim, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& ids);

  at::Tensor weight;
};

// LayerNorm over the last dim, with weight and bias [dim].
class LayerNorm : public Callable<LayerNorm> {
 public:
  LayerNorm(int64_t dim, double eps, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
  at::Tensor bias;

 private:
  double eps_;
};

// RMSNorm over the last dim (transformers Qwen3RMSNorm): fp32 inside, cast back, then times weight
// [dim].
class RmsNorm : public Callable<RmsNorm> {
 public:
  RmsNorm(int64_t dim, double eps, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;

 private:
  double eps_;
};

// Stochastic depth (timm DropPath): in training each row of dim 0 is kept with probability 1 - rate
// and divided by it.
class DropPath : public Callable<DropPath> {
 public:
  explicit DropPath(double rate) : rate_(rate) {}
  at::Tensor forward(const at::Tensor& x);

 private:
  double rate_;
};

}  // namespace shardloom::nn
