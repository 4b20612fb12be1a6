#include "shardloom/ops/cpu/swiglu.h"

#include "shardloom/ops/cpu/exp.h"

namespace shardloom::ops {

void swiglu_row(const float* __restrict gate,
                const float* __restrict up,
                float* __restrict act,
                int64_t n) {
  for (int64_t i = 0; i < n; ++i) act[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

float swiglu_backward_row(const float* __restrict gate,
                          const float* __restrict up,
                          const float* __restrict grad,
                          float scale,
                          int64_t n,
                          float* __restrict grad_gate,
                          float* __restrict grad_up,
                          float* __restrict scaled_act) {
  // Lanes, because a single sum would not vectorise; one_value is the same in both loops.
  constexpr int kLanes = 8;
  float lanes[kLanes] = {};
  const auto one_value = [&](int64_t i) {
    const float g = gate[i];
    const float sigmoid = 1.0f / (1.0f + fast_exp(-g));
    const float silu = g * sigmoid;
    const float act = silu * up[i];
    const float scaled_grad = grad[i] * scale;
    scaled_act[i] = act * scale;
    grad_up[i] = scaled_grad * silu;
    grad_gate[i] = scaled_grad * up[i] * sigmoid * (1.0f + g * (1.0f - sigmoid));
    return act * grad[i];
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += one_value(i + k);
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += one_value(i);
  return sum;
}

}  // namespace shardloom::ops
