#include "shardloom/ops/moe_fused.h"

#include "shardloom/ops/cpu/gemm.h"
#include "shardloom/ops/cpu/swiglu.h"
#include "shardloom/ops/moe_fused_parts.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

class Forward {
 public:
  Forward(const Sizes& n, const Permutation& p, const Operands& in, const at::Tensor& hidden)
      : n_(n),
        p_(p),
        in_(in),
        hidden_(hidden),
        sum_(p, n.H, in.weights32.const_data_ptr<float>()) {}

  at::Tensor run() {
    for_each_expert(p_, n_, in_.is_fp32, [&](const Pieces& s, int64_t e) { expert(s, e); });
    return sum_.finish();
  }

 private:
  void expert(const Pieces& s, int64_t e) {
    const int64_t first = p_.first[e], rows = p_.rows_of(e), M = padded_rows(rows);
    gather_rows(in_.x32, p_, first, rows, M, s.x, padded(n_.H));
    // Straight into the kept products, unless they are rounded or the padding would spill over.
    const bool in_place = hidden_.scalar_type() == at::kFloat && M == rows;
    const at::Tensor kept = hidden_.narrow(0, first, rows);
    float* h = in_place ? kept.mutable_data_ptr<float>() : s.hidden;
    const int64_t h_stride = in_place ? 2 * n_.I : padded(2 * n_.I);
    const Fp32Rows gate_up(in_.gate_up, e * n_.H, n_.H, s.weight);
    gemm(M, 2 * n_.I, n_.H, 1, {s.x, padded(n_.H)}, {gate_up.load(), 2 * n_.I}, 0, h, h_stride);
    if (!in_place) {
      const at::Tensor computed = view_fp32(h, rows, 2 * n_.I, h_stride);
      kept.copy_(computed);
      computed.copy_(kept);
    }
    for (int64_t r = 0; r < M; ++r)
      swiglu_row(h + r * h_stride, h + r * h_stride + n_.I, s.act + r * padded(n_.I), n_.I);
    float* place = M == rows ? sum_.place(first) : nullptr;
    float* y = place != nullptr ? place : s.y;
    const int64_t y_stride = place != nullptr ? n_.H : padded(n_.H);
    const Fp32Rows down(in_.down, e * n_.I, n_.I, s.weight);
    gemm(M, n_.H, n_.I, 1, {s.act, padded(n_.I)}, {down.load(), n_.H}, 0, y, y_stride);
    sum_.add(first, rows, y, y_stride);
  }

  const Sizes& n_;
  const Permutation& p_;
  const Operands& in_;
  const at::Tensor& hidden_;
  TokenSum sum_;
};

struct Gradients {
  at::Tensor weights, gate_up, down;
};

class Backward {
 public:
  Backward(const Sizes& n,
           const Permutation& p,
           const Operands& in,
           const at::Tensor& hidden,
           const at::Tensor& grad32,
           const Gradients& out)
      : n_(n), p_(p), in_(in), hidden_(hidden), grad32_(grad32), out_(out), sum_(p, n.H, nullptr) {}

  // The gradient by x; the others are written to the tensors given.
  at::Tensor run() {
    for (int64_t e = 0; e < n_.E; ++e) {
      if (p_.rows_of(e) > 0) continue;
      out_.gate_up.narrow(0, e * n_.H, n_.H).zero_();
      out_.down.narrow(0, e * n_.I, n_.I).zero_();
    }
    for_each_expert(p_, n_, in_.is_fp32, [&](const Pieces& s, int64_t e) {
      through_down(s, e);
      through_gate_up(s, e);
    });
    return sum_.finish();
  }

 private:
  // s.grad_hidden <- the gradient by the gate/up products; the gradients by down and the weights.
  // No expert output is kept: d weight = <y, dO> = <act, dO down^T>.
  void through_down(const Pieces& s, int64_t e) {
    const int64_t first = p_.first[e], rows = p_.rows_of(e), M = padded_rows(rows), I = n_.I;
    gather_rows(grad32_, p_, first, rows, M, s.y, padded(n_.H));
    const Fp32Rows down(in_.down, e * I, I, s.weight);
    gemm(M, I, n_.H, 1, {s.y, padded(n_.H)}, {down.load(), n_.H, true}, 0, s.grad_act, padded(I));
    const bool is_stored = hidden_.scalar_type() == at::kFloat;
    const at::Tensor kept = hidden_.narrow(0, first, rows);
    const float* h = is_stored ? kept.const_data_ptr<float>() : s.hidden;
    const int64_t h_stride = is_stored ? 2 * I : padded(2 * I);
    if (!is_stored) view_fp32(s.hidden, rows, 2 * I, h_stride).copy_(kept);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t slot = p_.slot_of_row[first + r];
      float* grad_h = s.grad_hidden + r * padded(2 * I);
      out_.weights.mutable_data_ptr<float>()[slot] =
          swiglu_backward_row(h + r * h_stride, h + r * h_stride + I, s.grad_act + r * padded(I),
                              in_.weights32.const_data_ptr<float>()[slot], I, grad_h, grad_h + I,
                              s.act + r * padded(I));
    }
    for (int64_t r = rows; r < M; ++r) {
      std::fill_n(s.grad_hidden + r * padded(2 * I), 2 * I, 0.0f);
      std::fill_n(s.act + r * padded(I), I, 0.0f);
    }
    const Fp32Rows grad_down(out_.down, e * I, I, s.grad_weight);
    gemm(I, n_.H, M, 1, {s.act, padded(I), true}, {s.y, padded(n_.H)}, 0, grad_down.data(), n_.H);
    grad_down.store();
  }

  void through_gate_up(const Pieces& s, int64_t e) {
    const int64_t first = p_.first[e], rows = p_.rows_of(e), M = padded_rows(rows), H = n_.H,
                  I = n_.I;
    gather_rows(in_.x32, p_, first, rows, M, s.x, padded(H));
    const Fp32Rows grad_gate_up(out_.gate_up, e * H, H, s.grad_weight);
    gemm(H, 2 * I, M, 1, {s.x, padded(H), true}, {s.grad_hidden, padded(2 * I)}, 0,
         grad_gate_up.data(), 2 * I);
    grad_gate_up.store();
    float* place = M == rows ? sum_.place(first) : nullptr;
    float* grad_x = place != nullptr ? place : s.y;
    const int64_t stride = place != nullptr ? H : padded(H);
    const Fp32Rows gate_up(in_.gate_up, e * H, H, s.weight);
    gemm(M, H, 2 * I, 1, {s.grad_hidden, padded(2 * I)}, {gate_up.load(), 2 * I, true}, 0, grad_x,
         stride);
    sum_.add(first, rows, grad_x, stride);
  }

  const Sizes& n_;
  const Permutation& p_;
  const Operands& in_;
  const at::Tensor& hidden_;
  const at::Tensor& grad32_;
  const Gradients& out_;
  TokenSum sum_;
};

class FusedExperts : public Function<FusedExperts> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weights,
                            const at::Tensor& experts,
                            const at::Tensor& gate_up,
                            const at::Tensor& down) {
    const Sizes n(x, experts, gate_up, down);
    const Permutation p = permute_by_expert(experts, n.E);
    const Operands in(x, weights, gate_up, down);
    const at::Tensor hidden = at::empty({n.T * n.K, 2 * n.I}, x.options());
    ctx->save_for_backward({x, weights, experts, gate_up, down, hidden});
    return Forward(n, p, in, hidden).run().to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weights = saved[1], &experts = saved[2], &gate_up = saved[3],
                     &down = saved[4], &hidden = saved[5];
    const Sizes n(x, experts, gate_up, down);
    const Permutation p = permute_by_expert(experts, n.E);
    const Operands in(x, weights, gate_up, down);
    const at::Tensor grad32 = grads[0].contiguous().to(at::kFloat);
    const Gradients out{at::empty({n.T, n.K}, in.weights32.options()),
                        at::empty_like(gate_up, at::MemoryFormat::Contiguous),
                        at::empty_like(down, at::MemoryFormat::Contiguous)};
    const at::Tensor grad_x = Backward(n, p, in, hidden, grad32, out).run();
    return {grad_x.to(x.scalar_type()), out.weights.to(weights.scalar_type()), at::Tensor(),
            out.gate_up, out.down};
  }
};

}  // namespace

at::Tensor fused_moe_experts(const at::Tensor& x_TH,
                             const Routing& routing,
                             const at::Tensor& gate_up,
                             const at::Tensor& down) {
  return FusedExperts::apply(x_TH, routing.weights_TK, routing.experts_TK, gate_up, down);
}

}  // namespace shardloom::ops
