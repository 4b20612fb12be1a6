// silu(gate) * up and its gradient, a row at a time.
#pragma once

#include <cstdint>

namespace shardloom::ops {

// act = silu(gate) * up, n values each.
void swiglu_row(const float* gate, const float* up, float* act, int64_t n);

// For a row whose result counts `scale` times, with grad the gradient by scale * act: writes the
// gradients by gate and up and scale * act; returns <act, grad>, the gradient by scale.
float swiglu_backward_row(const float* gate,
                          const float* up,
                          const float* grad,
                          float scale,
                          int64_t n,
                          float* grad_gate,
                          float* grad_up,
                          float* scaled_act);

}  // namespace shardloom::ops
