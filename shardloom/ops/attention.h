// Scaled dot-product attention with grouped key/value heads.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// q [B, S, heads, d], k and v [B, S, kv_heads, d] with heads % kv_heads == 0 -> [B, S, heads, d].
// Softmax of q k^T / sqrt(d) over the keys; with `causal`, row i sees keys 0..i. Rows beyond a
// sample's length (right padding) see only what causality lets them see; their outputs are
// meaningless and must not be used. Low precision on CPU is computed in fp32 and rounded once (see
// docs/bf16.md).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

}  // namespace shardloom::ops
