// Rotary position embedding (RoFormer; the rotate_half form of transformers Qwen3).
#pragma once

#include <ATen/core/Tensor.h>

namespace shardloom::ops {

// Angles of positions 0..length-1: fp32 [length, head_dim / 2], angle[p, i] = p * theta^(-2i /
// head_dim).
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};
RopeTable make_rope_table(int64_t length, int64_t head_dim, double theta);

// x [B, S, heads, head_dim]; row s is rotated by the table's row `first_position` + s:
// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin with x1, x2 the halves of head_dim. cos and sin are
// rounded to x's type.
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, int64_t first_position = 0);

}  // namespace shardloom::ops
