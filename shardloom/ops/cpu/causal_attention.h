// Causal attention with grouped key/value heads on CPU, fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// attention() of attention.h for causal fp32 CPU tensors, differentiable. q [B, T, heads, d], k and
// v [B, T, kv_heads, d], read in place when the last dim is dense.
//
// A block of positions of all heads that share a key/value head is one matrix; keys beyond the
// block are not touched, and none is repeated (FlashAttention-2, Dao 2023: softmax over tiles of
// keys, probabilities computed again from the row's log sum in the backward pass). Scratch does not
// grow with T. Keeps q, k, v, the result and one value a row and head. Each (sample, key/value
// head) is computed by one thread in a fixed order.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace shardloom::ops
