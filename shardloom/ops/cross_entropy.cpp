#include "shardloom/ops/cross_entropy.h"

#include "shardloom/ops/cpu/rows.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// fp32 logits in CPU memory are read once a row each way; everything else is composed.
bool takes_rows(const at::Tensor& logits) {
  return logits.is_cpu() && logits.scalar_type() == at::kFloat;
}

at::Tensor log_sum_of_rows(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), columns = logits.size(1);
  at::Tensor log_sum = at::empty({rows}, logits.options());
  const float* x = logits.const_data_ptr<float>();
  float* out = log_sum.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float highest = max_of_row(x + r * columns, columns, -INFINITY);
      out[r] = highest + std::log(sum_of_exp(x + r * columns, columns, highest));
    }
  });
  return log_sum;
}

// scale[r] * exp(logits[r] - log_sum[r])
at::Tensor scaled_softmax(const at::Tensor& logits,
                          const at::Tensor& log_sum,
                          const at::Tensor& scale) {
  const int64_t columns = logits.size(1);
  at::Tensor result = at::empty(logits.sizes(), logits.options());
  const float* x = logits.const_data_ptr<float>();
  float* y = result.mutable_data_ptr<float>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float shift = log_sum.const_data_ptr<float>()[r];
      const float factor = scale.const_data_ptr<float>()[r];
      for (int64_t i = r * columns; i < (r + 1) * columns; ++i)
        y[i] = fast_exp(x[i] - shift) * factor;
    }
  });
  return result;
}

class WeightedCrossEntropy : public Function<WeightedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& logits,
                            const at::Tensor& targets,
                            const at::Tensor& weights) {
    const at::Tensor logits32 = logits.to(at::kFloat);
    const at::Tensor log_sum =
        takes_rows(logits) ? log_sum_of_rows(logits32.contiguous()) : at::logsumexp(logits32, {1});
    const at::Tensor losses = log_sum - logits32.gather(1, targets.unsqueeze(1)).squeeze(1);
    ctx->save_for_backward({logits, targets, weights, log_sum});
    return (losses * weights).sum();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::Tensor row_scale = (saved[2] * grads[0]).unsqueeze(1);
    at::Tensor grad =
        takes_rows(logits)
            ? scaled_softmax(logits.contiguous(), saved[3], row_scale.contiguous())
            : at::sub(logits.to(at::kFloat), saved[3].unsqueeze(1)).exp_().mul_(row_scale);
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
