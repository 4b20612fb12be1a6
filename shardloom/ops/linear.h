// Matrix products that also hold for low-precision types on CPUs without instructions for them.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// True when products of this tensor are computed in fp32 on the stored low-precision values (see
// docs/bf16.md): bf16 or fp16 on a CPU, where ATen's own products are up to 50 times slower than
// fp32.
bool computes_in_fp32(const at::Tensor& tensor);

// y = x W^T + b (torch.nn.functional.linear). x [..., in], weight [out, in], bias [out] or
// undefined -> [..., out]. Low precision on CPU: products and sums in fp32, the result and the
// gradients rounded once to the stored type.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace shardloom::ops
