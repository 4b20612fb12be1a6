#include "shardloom/optim/adamw.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

#include "shardloom/base/error.h"

namespace shardloom::optim {
namespace {

struct Factors {
  float decay;  // 1 - lr * weight_decay
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float step_size;                 // lr / (1 - beta1^t)
  float inverse_sqrt_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float grad_scale;
};

constexpr int64_t kElementsPerTask = 1 << 16;

void update_cpu(float* __restrict value,
                const float* __restrict grad,
                float* __restrict exp_avg,
                float* __restrict exp_avg_sq,
                int64_t count,
                const Factors& f) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * f.grad_scale;
    const float m = exp_avg[i] * f.beta1 + g * f.one_minus_beta1;
    const float v = exp_avg_sq[i] * f.beta2 + g * g * f.one_minus_beta2;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = std::sqrt(v) * f.inverse_sqrt_correction2 + f.eps;
    value[i] = value[i] * f.decay - f.step_size * m / denominator;
  }
}

void update_any(at::Tensor value,
                const at::Tensor& grad,
                at::Tensor exp_avg,
                at::Tensor exp_avg_sq,
                const Factors& f) {
  const at::Tensor g = grad * f.grad_scale;
  exp_avg.mul_(f.beta1).add_(g, f.one_minus_beta1);
  exp_avg_sq.mul_(f.beta2).addcmul_(g, g, f.one_minus_beta2);
  const at::Tensor denominator = exp_avg_sq.sqrt().mul_(f.inverse_sqrt_correction2).add_(f.eps);
  value.mul_(f.decay).addcdiv_(exp_avg, denominator, -f.step_size);
}

}  // namespace

void AdamW::step(const std::vector<OptimizedTensor>& tensors,
                 double learning_rate,
                 double grad_scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (moments_.empty()) {
    for (const auto& t : tensors)
      moments_.push_back({at::zeros_like(t.value), at::zeros_like(t.value)});
  }
  SHARDLOOM_CHECK(moments_.size() == tensors.size(), "{} tensors, {} moments", tensors.size(),
                  moments_.size());
  ++steps_;
  const auto t = static_cast<double>(steps_);
  Factors f{};
  f.beta1 = static_cast<float>(options_.beta1);
  f.one_minus_beta1 = static_cast<float>(1.0 - options_.beta1);
  f.beta2 = static_cast<float>(options_.beta2);
  f.one_minus_beta2 = static_cast<float>(1.0 - options_.beta2);
  f.step_size = static_cast<float>(learning_rate / (1.0 - std::pow(options_.beta1, t)));
  f.inverse_sqrt_correction2 =
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t)));
  f.eps = static_cast<float>(options_.eps);
  f.grad_scale = static_cast<float>(grad_scale);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor value = tensors[i].value;
    f.decay = static_cast<float>(
        1.0 - (tensors[i].decays ? learning_rate * options_.weight_decay : 0.0));
    const at::Tensor grad =
        tensors[i].grad.defined() ? tensors[i].grad.contiguous() : at::zeros_like(value);
    const Moments& moments = moments_[i];
    if (!value.is_cpu()) {
      update_any(value, grad, moments.exp_avg, moments.exp_avg_sq, f);
      continue;
    }
    SHARDLOOM_CHECK(value.scalar_type() == at::kFloat && value.is_contiguous() &&
                        grad.scalar_type() == at::kFloat,
                    "{}", tensors[i].name);
    float* p = value.mutable_data_ptr<float>();
    const float* g = grad.const_data_ptr<float>();
    float* m = moments.exp_avg.mutable_data_ptr<float>();
    float* v = moments.exp_avg_sq.mutable_data_ptr<float>();
    at::parallel_for(0, value.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
      update_cpu(p + begin, g + begin, m + begin, v + begin, end - begin, f);
    });
  }
}

void AdamW::restore(std::vector<Moments> moments, int64_t steps) {
  moments_ = std::move(moments);
  steps_ = steps;
}

}  // namespace shardloom::optim
