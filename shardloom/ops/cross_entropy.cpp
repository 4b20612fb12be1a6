#include "shardloom/ops/cross_entropy.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

class WeightedCrossEntropy : public Function<WeightedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& logits,
                            const at::Tensor& targets,
                            const at::Tensor& weights) {
    const at::Tensor logits32 = logits.to(at::kFloat);
    const at::Tensor log_sum = at::logsumexp(logits32, {1});
    const at::Tensor losses = log_sum - logits32.gather(1, targets.unsqueeze(1)).squeeze(1);
    ctx->save_for_backward({logits, targets, weights, log_sum});
    return (losses * weights).sum();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::Tensor row_scale = (saved[2] * grads[0]).unsqueeze(1);
    at::Tensor grad = at::sub(logits.to(at::kFloat), saved[3].unsqueeze(1)).exp_().mul_(row_scale);
    grad.scatter_add_(1, saved[1].unsqueeze(1), -row_scale);
    return {grad.to(logits.scalar_type()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor weighted_cross_entropy(const at::Tensor& logits,
                                  const at::Tensor& targets,
                                  const at::Tensor& weights) {
  return WeightedCrossEntropy::apply(logits, targets, weights);
}

}  // namespace shardloom::ops
