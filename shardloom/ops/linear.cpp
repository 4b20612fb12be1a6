#include "shardloom/ops/linear.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

class LinearInFp32 : public Function<LinearInFp32> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    const auto bias32 = bias ? std::optional<at::Tensor>(bias->to(at::kFloat)) : std::nullopt;
    return at::linear(x.to(at::kFloat), weight.to(at::kFloat), bias32).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor grad = grads[0].reshape({-1, weight.size(0)}).to(at::kFloat);
    at::Tensor grad_x, grad_weight, grad_bias;
    if (ctx->needs_input_grad(0)) {
      grad_x = at::mm(grad, weight.to(at::kFloat)).to(x.scalar_type()).view(x.sizes());
    }
    if (ctx->needs_input_grad(1)) {
      grad_weight =
          at::mm(grad.t(), x.reshape({-1, weight.size(1)}).to(at::kFloat)).to(weight.scalar_type());
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) {
      grad_bias = grad.sum(0).to(weight.scalar_type());
    }
    return {grad_x, grad_weight, grad_bias};
  }
};

}  // namespace

bool computes_in_fp32(const at::Tensor& tensor) {
  return tensor.is_cpu() &&
         (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto given_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  return computes_in_fp32(x) ? LinearInFp32::apply(x, weight, given_bias)
                             : at::linear(x, weight, given_bias);
}

}  // namespace shardloom::ops
