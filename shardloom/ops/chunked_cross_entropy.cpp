#include "shardloom/ops/chunked_cross_entropy.h"

#include <torch/csrc/autograd/graph_task.h>

#include "shardloom/base/error.h"
#include "shardloom/ops/linear.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Needs {
  bool hidden, weight, bias;
  bool any() const { return hidden || weight || bias; }
};

// The output layer in the types that its products are made in.
class Head {
 public:
  Head(const at::Tensor& hidden, const at::Tensor& weight, const std::optional<at::Tensor>& bias)
      : stored_(hidden.scalar_type()),
        computed_(computes_in_fp32(hidden) ? at::kFloat : stored_),
        weight_(weight.to(computed_)),
        bias_(bias ? std::optional(bias->to(computed_)) : std::nullopt) {}

  at::Tensor rows(const at::Tensor& hidden) const { return hidden.to(computed_); }
  // fp32, rounded to the stored type in between as the output of linear() is.
  at::Tensor logits(const at::Tensor& rows) const {
    return at::linear(rows, weight_, bias_).to(stored_).to(at::kFloat);
  }
  at::Tensor logit_grad(const at::Tensor& grad32) const { return grad32.to(stored_).to(computed_); }
  at::Tensor hidden_grad(const at::Tensor& logit_grad) const { return at::mm(logit_grad, weight_); }

 private:
  at::ScalarType stored_;
  at::ScalarType computed_;
  at::Tensor weight_;
  std::optional<at::Tensor> bias_;
};

void add_weight_grad(const at::Tensor& sum32,
                     const at::Tensor& logit_grad,
                     const at::Tensor& rows) {
  if (rows.scalar_type() == at::kFloat) {
    sum32.addmm_(logit_grad.t(), rows);
  } else if (rows.is_cuda()) {
    sum32.add_(at::mm(logit_grad.t(), rows, at::kFloat));
  } else {
    sum32.add_(at::mm(logit_grad.t(), rows));
  }
}

// Replaces fp32 logits by weight * (softmax - one_hot(target)); returns the rows' losses.
at::Tensor loss_and_logit_grad(at::Tensor& logits,
                               const at::Tensor& targets,
                               const at::Tensor& weights,
                               bool needs_grad) {
  const at::Tensor target_column = targets.unsqueeze(1);
  logits.sub_(at::amax(logits, {1}, /*keepdim=*/true));
  const at::Tensor target_logits = logits.gather(1, target_column);
  logits.exp_();
  const at::Tensor sums = logits.sum(1, /*keepdim=*/true);
  if (needs_grad) {
    const at::Tensor scale = weights.unsqueeze(1);
    logits.mul_(scale / sums);
    logits.scatter_add_(1, target_column, -scale);
  }
  return (sums.log() - target_logits).squeeze(1);
}

// grad * scale in `type`. `may_reuse`: nobody needs `grad` afterwards.
at::Tensor scaled(const at::Tensor& grad,
                  const at::Tensor& scale,
                  at::ScalarType type,
                  bool may_reuse) {
  if (!grad.defined()) return {};
  // On a device the comparison would wait for it.
  const bool is_one = scale.is_cpu() && scale.item<float>() == 1.0f;
  if (!may_reuse) return (is_one ? grad.clone() : grad * scale).to(type);
  if (!is_one) grad.mul_(scale);
  // A handle of its own, so that autograd can take the memory over as the parameter's gradient.
  return grad.detach().to(type);
}

class ChunkedCrossEntropy : public Function<ChunkedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& hidden,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const at::Tensor& targets,
                            const at::Tensor& weights,
                            int64_t chunk_rows,
                            Needs needs) {
    const Head head(hidden, weight, bias);
    const at::TensorOptions fp32 = hidden.options().dtype(at::kFloat);
    at::Tensor loss = at::zeros({}, fp32);
    at::Tensor grad_hidden, grad_weight, grad_bias;
    if (needs.hidden) grad_hidden = at::empty_like(hidden);
    if (needs.weight) grad_weight = at::zeros(weight.sizes(), fp32);
    if (needs.bias) grad_bias = at::zeros(bias->sizes(), fp32);
    for (int64_t first = 0; first < hidden.size(0); first += chunk_rows) {
      const int64_t count = std::min(chunk_rows, hidden.size(0) - first);
      const at::Tensor chunk_weights = weights.narrow(0, first, count);
      const at::Tensor rows = head.rows(hidden.narrow(0, first, count));
      at::Tensor logits = head.logits(rows);
      loss.add_((loss_and_logit_grad(logits, targets.narrow(0, first, count), chunk_weights,
                                     needs.any()) *
                 chunk_weights)
                    .sum());
      if (!needs.any()) continue;
      logits = head.logit_grad(logits);
      if (needs.hidden) grad_hidden.narrow(0, first, count).copy_(head.hidden_grad(logits));
      if (needs.weight) add_weight_grad(grad_weight, logits, rows);
      if (needs.bias) grad_bias.add_(logits.sum(0, /*keepdim=*/false, at::kFloat));
    }
    ctx->save_for_backward({grad_hidden, grad_weight, grad_bias});
    ctx->saved_data["hidden_type"] = static_cast<int64_t>(hidden.scalar_type());
    ctx->saved_data["weight_type"] = static_cast<int64_t>(weight.scalar_type());
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto type = [&](const char* name) {
      return static_cast<at::ScalarType>(ctx->saved_data[name].toInt());
    };
    const bool may_reuse = !torch::autograd::get_current_graph_task_keep_graph();
    return {scaled(saved[0], grads[0], type("hidden_type"), may_reuse),
            scaled(saved[1], grads[0], type("weight_type"), may_reuse),
            scaled(saved[2], grads[0], type("weight_type"), may_reuse),
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor chunked_cross_entropy(const at::Tensor& hidden,
                                 const at::Tensor& weight,
                                 const at::Tensor& bias,
                                 const at::Tensor& targets,
                                 const at::Tensor& weights,
                                 int64_t chunk_rows) {
  SHARDLOOM_CHECK(chunk_rows >= 1, "chunk_rows is {}", chunk_rows);
  const bool grad = at::GradMode::is_enabled();
  const Needs needs{grad && hidden.requires_grad(), grad && weight.requires_grad(),
                    grad && bias.defined() && bias.requires_grad()};
  const auto given_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  return ChunkedCrossEntropy::apply(hidden, weight, given_bias, targets, weights, chunk_rows,
                                    needs);
}

}  // namespace shardloom::ops
