// What the two passes of the fused expert block share: sizes, operands, scratch. For moe_fused.cpp.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "shardloom/base/error.h"
#include "shardloom/ops/moe_permutation.h"

namespace shardloom::ops {

// BLAS takes other kernels, with other bits, for products of one or two rows.
constexpr int64_t kMinRows = 8;

// Rows of scratch are longer than their content: with a power of two between them they would share
// few sets of the cache.
constexpr int64_t padded(int64_t width) { return width + 16; }

struct Sizes {
  Sizes(const at::Tensor& x,
        const at::Tensor& experts,
        const at::Tensor& gate_up,
        const at::Tensor& down)
      : T(x.size(0)),
        K(experts.size(1)),
        E(x.size(1) == 0 ? 0 : gate_up.size(0) / x.size(1)),
        H(x.size(1)),
        I(gate_up.size(1) / 2) {
    SHARDLOOM_CHECK(E * H == gate_up.size(0) && 2 * I == gate_up.size(1) && down.dim() == 2 &&
                        down.size(0) == E * I && down.size(1) == H && experts.size(0) == T,
                    "moe_experts: x [{}, {}], experts [{}, {}], gate_up [{}, {}], down [{}, {}]", T,
                    H, experts.size(0), K, gate_up.size(0), gate_up.size(1), down.size(0),
                    down.size(1));
  }
  int64_t T, K, E, H, I;
};

// Scratch of one thread, cut into pieces.
class Scratch {
 public:
  explicit Scratch(int64_t floats) : memory_(at::empty({floats}, at::kFloat)) {}
  float* take(int64_t floats) {
    float* piece = memory_.mutable_data_ptr<float>() + used_;
    used_ += floats;
    SHARDLOOM_CHECK(used_ <= memory_.numel(), "{} of {} floats of scratch", used_, memory_.numel());
    return piece;
  }

 private:
  at::Tensor memory_;
  int64_t used_ = 0;
};

inline at::Tensor view_fp32(float* data, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(data, {rows, columns}, {stride, 1}, at::kFloat);
}

// Rows [first, first + count) of a dense matrix as fp32 in memory: the stored ones, or those of
// `scratch` when it is stored in another type.
class Fp32Rows {
 public:
  Fp32Rows(const at::Tensor& stored, int64_t first, int64_t count, float* scratch)
      : rows_(stored.narrow(0, first, count)),
        is_stored_(stored.scalar_type() == at::kFloat),
        data_(is_stored_ ? rows_.mutable_data_ptr<float>() : scratch) {}
  float* data() const { return data_; }
  const float* load() const {
    if (!is_stored_) view().copy_(rows_);
    return data_;
  }
  void store() const {
    if (!is_stored_) rows_.copy_(view());
  }

 private:
  at::Tensor view() const { return view_fp32(data_, rows_.size(0), rows_.size(1), rows_.size(1)); }

  at::Tensor rows_;
  bool is_stored_;
  float* data_;
};

inline int64_t padded_rows(int64_t rows) { return std::max(rows, kMinRows); }

// What one thread needs for any expert; a piece that another type makes necessary only then.
struct Pieces {
  Pieces(const Sizes& n, const Permutation& p, bool is_fp32)
      : M(largest(p)),
        weight_floats(is_fp32 ? 0 : n.H * 2 * n.I),
        scratch(2 * M * padded(n.H) + M * (2 * padded(2 * n.I) + 2 * padded(n.I)) +
                2 * weight_floats),
        x(scratch.take(M * padded(n.H))),
        y(scratch.take(M * padded(n.H))),
        hidden(scratch.take(M * padded(2 * n.I))),
        grad_hidden(scratch.take(M * padded(2 * n.I))),
        act(scratch.take(M * padded(n.I))),
        grad_act(scratch.take(M * padded(n.I))),
        weight(scratch.take(weight_floats)),
        grad_weight(scratch.take(weight_floats)) {}

  static int64_t largest(const Permutation& p) {
    int64_t rows = kMinRows;
    for (int64_t e = 0; e < p.num_experts(); ++e) rows = std::max(rows, p.rows_of(e));
    return rows;
  }

  int64_t M, weight_floats;
  Scratch scratch;
  float *x, *y, *hidden, *grad_hidden, *act, *grad_act, *weight, *grad_weight;
};

// Runs body(pieces, e) for each expert that has tokens; experts in parallel, each one serial
// inside, without autograd.
template <typename Body>
void for_each_expert(const Permutation& p, const Sizes& n, bool is_fp32, const Body& body) {
  at::parallel_for(0, n.E, 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Pieces pieces(n, p, is_fp32);
    for (int64_t e = begin; e < end; ++e) {
      if (p.rows_of(e) > 0) body(pieces, e);
    }
  });
}

// Tensors of a call in the form that the kernels read.
struct Operands {
  Operands(const at::Tensor& x,
           const at::Tensor& weights,
           const at::Tensor& gu,
           const at::Tensor& d)
      : x32(x.contiguous().to(at::kFloat)),
        weights32(weights.contiguous().to(at::kFloat)),
        gate_up(gu.contiguous()),
        down(d.contiguous()),
        is_fp32(gu.scalar_type() == at::kFloat && d.scalar_type() == at::kFloat) {}
  at::Tensor x32, weights32, gate_up, down;
  bool is_fp32;
};

}  // namespace shardloom::ops
