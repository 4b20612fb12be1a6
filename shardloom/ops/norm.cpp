#include "shardloom/ops/norm.h"

#include <ATen/Dispatch.h>

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerTask = 64;

// The sum of squares runs over 8 lanes, so that it vectorises without reassociating behind our
// back.
template <typename scalar_t>
float row_rstd(const scalar_t* x, int64_t dim, float eps) {
  float lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (int k = 0; k < 8; ++k) {
      const float v = static_cast<float>(x[i + k]);
      lanes[k] += v * v;
    }
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < dim; ++i) sum += static_cast<float>(x[i]) * static_cast<float>(x[i]);
  return 1.0f / std::sqrt(sum / static_cast<float>(dim) + eps);
}

template <typename scalar_t>
void forward_rows(const scalar_t* x,
                  const scalar_t* weight,
                  scalar_t* y,
                  float* rstd,
                  int64_t rows,
                  int64_t dim,
                  float eps) {
  at::parallel_for(0, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const scalar_t* xr = x + r * dim;
      scalar_t* yr = y + r * dim;
      const float factor = row_rstd(xr, dim, eps);
      rstd[r] = factor;
      for (int64_t i = 0; i < dim; ++i) {
        const scalar_t normed = static_cast<scalar_t>(static_cast<float>(xr[i]) * factor);
        yr[i] = static_cast<scalar_t>(static_cast<float>(normed) * static_cast<float>(weight[i]));
      }
    }
  });
}

// dx = rstd * (g*w - x * rstd^2 * mean(g*w*x)); dw = sum over rows of g * x * rstd, by fixed blocks
// of rows, so that the result does not depend on the number of threads.
template <typename scalar_t>
void backward_rows(const scalar_t* grad,
                   const scalar_t* x,
                   const scalar_t* weight,
                   const float* rstd,
                   scalar_t* grad_x,
                   float* grad_weight_blocks,
                   int64_t rows,
                   int64_t dim) {
  const int64_t blocks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* gw = grad_weight_blocks + block * dim;
      const int64_t last = std::min(rows, (block + 1) * kRowsPerTask);
      for (int64_t r = block * kRowsPerTask; r < last; ++r) {
        const scalar_t* gr = grad + r * dim;
        const scalar_t* xr = x + r * dim;
        const float factor = rstd[r];
        float lanes[8] = {};
        int64_t i = 0;
        for (; i + 8 <= dim; i += 8) {
          for (int k = 0; k < 8; ++k) {
            lanes[k] += static_cast<float>(gr[i + k]) * static_cast<float>(weight[i + k]) *
                        static_cast<float>(xr[i + k]);
          }
        }
        float dot = 0;
        for (float lane : lanes) dot += lane;
        for (; i < dim; ++i)
          dot +=
              static_cast<float>(gr[i]) * static_cast<float>(weight[i]) * static_cast<float>(xr[i]);
        const float slope = dot / static_cast<float>(dim) * factor * factor;
        for (int64_t k = 0; k < dim; ++k) {
          const float g = static_cast<float>(gr[k]);
          const float v = static_cast<float>(xr[k]);
          gw[k] += g * static_cast<float>(static_cast<scalar_t>(v * factor));
          grad_x[r * dim + k] =
              static_cast<scalar_t>(factor * (g * static_cast<float>(weight[k]) - v * slope));
        }
      }
    }
  });
}

// A weight that is in no unit (ignored_modules) stays in its own type.
at::Tensor in_type_of(const at::Tensor& x, const at::Tensor& weight) {
  return weight.to(x.scalar_type()).contiguous();
}

class FusedRmsNorm : public Function<FusedRmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x_any,
                            const at::Tensor& weight,
                            double eps) {
    const at::Tensor x = x_any.contiguous();
    const at::Tensor scale = in_type_of(x, weight);
    const int64_t dim = x.size(-1);
    const int64_t rows = dim == 0 ? 0 : x.numel() / dim;
    at::Tensor y = at::empty_like(x);
    at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm", [&] {
      forward_rows(x.const_data_ptr<scalar_t>(), scale.const_data_ptr<scalar_t>(),
                   y.mutable_data_ptr<scalar_t>(), rstd.mutable_data_ptr<float>(), rows, dim,
                   static_cast<float>(eps));
    });
    ctx->save_for_backward({x, weight, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor weight = in_type_of(x, saved[1]);
    const at::Tensor grad = grads[0].contiguous();
    const int64_t dim = x.size(-1);
    const int64_t rows = dim == 0 ? 0 : x.numel() / dim;
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor blocks =
        at::zeros({(rows + kRowsPerTask - 1) / kRowsPerTask, dim}, x.options().dtype(at::kFloat));
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm_backward", [&] {
          backward_rows(grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                        weight.const_data_ptr<scalar_t>(), saved[2].const_data_ptr<float>(),
                        grad_x.mutable_data_ptr<scalar_t>(), blocks.mutable_data_ptr<float>(), rows,
                        dim);
        });
    return {grad_x, blocks.sum(0).to(saved[1].scalar_type()), at::Tensor()};
  }
};

at::Tensor composed_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor x32 = x.to(at::kFloat);
  const at::Tensor normed = x32 * at::rsqrt(x32.pow(2).mean(-1, /*keepdim=*/true) + eps);
  return normed.to(x.scalar_type()) * in_type_of(x, weight);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x.is_cpu() ? FusedRmsNorm::apply(x, weight, eps) : composed_rms_norm(x, weight, eps);
}

}  // namespace shardloom::ops
