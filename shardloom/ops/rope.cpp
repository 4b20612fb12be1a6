#include "shardloom/ops/rope.h"

#include <ATen/Dispatch.h>

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// direction 1 rotates, -1 rotates back (the gradient).
template <typename scalar_t>
void rotate(const scalar_t* x,
            scalar_t* y,
            const float* cos,
            const float* sin,
            int64_t positions,
            int64_t sequence,
            int64_t heads,
            int64_t half,
            float direction) {
  at::parallel_for(0, positions, 16, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const float* c = cos + (p % sequence) * half;
      const float* s = sin + (p % sequence) * half;
      for (int64_t h = 0; h < heads; ++h) {
        const scalar_t* x1 = x + (p * heads + h) * half * 2;
        const scalar_t* x2 = x1 + half;
        scalar_t* y1 = y + (p * heads + h) * half * 2;
        scalar_t* y2 = y1 + half;
        for (int64_t i = 0; i < half; ++i) {
          const float ci = static_cast<float>(static_cast<scalar_t>(c[i]));
          const float si = static_cast<float>(static_cast<scalar_t>(s[i])) * direction;
          const float a = static_cast<float>(x1[i]);
          const float b = static_cast<float>(x2[i]);
          y1[i] = static_cast<scalar_t>(a * ci - b * si);
          y2[i] = static_cast<scalar_t>(b * ci + a * si);
        }
      }
    }
  });
}

at::Tensor rotate_cpu(const at::Tensor& x_any,
                      const at::Tensor& cos,
                      const at::Tensor& sin,
                      float direction) {
  const at::Tensor x = x_any.contiguous();
  at::Tensor y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "apply_rope", [&] {
    rotate(x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(),
           cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), x.size(0) * x.size(1),
           x.size(1), x.size(2), x.size(3) / 2, direction);
  });
  return y;
}

class FusedRope : public Function<FusedRope> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->saved_data["cos"] = cos;
    ctx->saved_data["sin"] = sin;
    return rotate_cpu(x, cos, sin, 1.0f);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor cos = ctx->saved_data["cos"].toTensor();
    const at::Tensor sin = ctx->saved_data["sin"].toTensor();
    return {rotate_cpu(grads[0], cos, sin, -1.0f), at::Tensor(), at::Tensor()};
  }
};

at::Tensor composed_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor c = cos.to(x.options()).unsqueeze(1);
  const at::Tensor s = sin.to(x.options()).unsqueeze(1);
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

}  // namespace

RopeTable make_rope_table(int64_t length, int64_t head_dim, double theta) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponent = at::arange(0, head_dim, 2, options.dtype(at::kLong)).to(at::kFloat) /
                              static_cast<double>(head_dim);
  const at::Tensor inverse_frequency = 1.0 / at::pow(at::Scalar(theta), exponent);
  const at::Tensor angles = at::outer(at::arange(length, options), inverse_frequency);
  return {angles.cos(), angles.sin()};
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, int64_t first_position) {
  const at::Tensor cos = table.cos.narrow(0, first_position, x.size(1));
  const at::Tensor sin = table.sin.narrow(0, first_position, x.size(1));
  return x.is_cpu() ? FusedRope::apply(x, cos, sin) : composed_rope(x, cos, sin);
}

}  // namespace shardloom::ops
