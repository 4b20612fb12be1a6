// AdamW with decoupled weight decay (Loshchilov and Hutter 2019; torch.optim.AdamW) on fp32
// parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace shardloom::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
};

// One trained tensor. `value` and `grad` are fp32, dense, of the same shape; grad undefined counts
// as zeros.
struct OptimizedTensor {
  std::string name;
  at::Tensor value;
  at::Tensor grad;
  bool decays = true;  // false: without weight decay
};

// On CPU one pass over value, gradient and moments. Each element's arithmetic is the same wherever
// it lies in the tensor (no fused multiply-add, no reassociation), so sharded and whole parameters
// get the same bits.
class AdamW {
 public:
  explicit AdamW(AdamWOptions options) : options_(options) {}

  // Update number `steps() + 1`. Gradients are multiplied by grad_scale first (the clip factor).
  // The list must hold the same tensors in the same order each time.
  void step(const std::vector<OptimizedTensor>& tensors, double learning_rate, double grad_scale);

  int64_t steps() const { return steps_; }

  struct Moments {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
  };
  // In the order of the tensors; empty before the first step.
  const std::vector<Moments>& moments() const { return moments_; }
  // Goes on from a state after `steps` updates.
  void restore(std::vector<Moments> moments, int64_t steps);

 private:
  AdamWOptions options_;
  std::vector<Moments> moments_;
  int64_t steps_ = 0;
};

}  // namespace shardloom::optim
