#include "shardloom/nn/layers.h"

#include "shardloom/ops/linear.h"
#include "shardloom/ops/norm.h"

namespace shardloom::nn {

Linear::Linear(int64_t in_features,
               int64_t out_features,
               bool with_bias,
               const at::TensorOptions& options)
    : weight(at::empty({out_features, in_features}, options)) {
  register_parameter("weight", weight);
  if (with_bias) {
    bias = at::empty({out_features}, options);
    register_parameter("bias", bias);
  }
}

at::Tensor Linear::forward(const at::Tensor& x) { return ops::linear(x, weight, bias); }

Embedding::Embedding(int64_t rows, int64_t dim, const at::TensorOptions& options)
    : weight(at::empty({rows, dim}, options)) {
  register_parameter("weight", weight);
}

at::Tensor Embedding::forward(const at::Tensor& ids) { return at::embedding(weight, ids); }

LayerNorm::LayerNorm(int64_t dim, double eps, const at::TensorOptions& options)
    : weight(at::empty({dim}, options)), bias(at::empty({dim}, options)), eps_(eps) {
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(x, {weight.size(0)}, weight, bias, eps_);
}

RmsNorm::RmsNorm(int64_t dim, double eps, const at::TensorOptions& options)
    : weight(at::empty({dim}, options)), eps_(eps) {
  register_parameter("weight", weight);
}

at::Tensor RmsNorm::forward(const at::Tensor& x) { return ops::rms_norm(x, weight, eps_); }

at::Tensor DropPath::forward(const at::Tensor& x) {
  if (rate_ == 0.0 || !is_training()) return x;
  const double keep = 1.0 - rate_;
  std::vector<int64_t> shape(x.dim(), 1);
  shape[0] = x.size(0);
  return x * at::empty(shape, x.options()).bernoulli_(keep).div_(keep);
}

}  // namespace shardloom::nn
