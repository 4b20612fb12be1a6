// Elementwise activations.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// silu(gate) * up, same shapes (GLU variants, Shazeer 2020). Saves only its inputs.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace shardloom::ops
