#include "shardloom/trainer/master_weights.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "shardloom/base/error.h"

namespace shardloom::trainer {

MasterWeights::MasterWeights(nn::Module& model, std::optional<at::ScalarType> compute_dtype)
    : compute_dtype_(compute_dtype) {
  for (const nn::NamedTensor& p : model.named_parameters()) {
    const bool trained = p.tensor->requires_grad();
    entries_.push_back({p.name, p.tensor, *p.tensor, {}, trained});
    if (compute_dtype_) {
      entries_.back().master = p.tensor->detach();
      *p.tensor = entries_.back().master.to(*compute_dtype_).requires_grad_(trained);
    }
  }
}

void MasterWeights::refresh_model() {
  if (!compute_dtype_) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (Entry& e : entries_) {
    if (e.trained) e.model->copy_(e.master);
  }
}

void MasterWeights::collect_gradients() {
  const at::NoGradGuard no_grad;
  for (Entry& e : entries_) {
    at::Tensor& grad = e.model->mutable_grad();
    if (!e.trained || !grad.defined()) continue;
    if (!compute_dtype_) {
      e.grad = grad;  // autograd adds up in fp32 by itself
      continue;
    }
    if (e.grad.defined()) {
      e.grad.add_(grad);
    } else {
      e.grad = grad.to(at::kFloat);
    }
    grad.reset();
  }
}

void MasterWeights::zero_grad() {
  for (Entry& e : entries_) {
    e.grad.reset();
    e.model->mutable_grad().reset();
  }
}

std::vector<optim::OptimizedTensor> MasterWeights::trained() const {
  std::vector<optim::OptimizedTensor> out;
  for (const Entry& e : entries_) {
    if (e.trained) out.push_back({e.name, e.master.detach(), e.grad});
  }
  return out;
}

std::vector<nn::NamedTensor> MasterWeights::all() {
  std::vector<nn::NamedTensor> out;
  for (Entry& e : entries_) out.push_back({e.name, &e.master});
  return out;
}

std::optional<at::ScalarType> compute_dtype(const std::optional<std::string>& name) {
  if (!name || *name == "fp32") return std::nullopt;
  if (*name == "bf16") return at::kBFloat16;
  if (*name == "fp16") return at::kHalf;
  throw ConfigError(
      "parallel.fsdp_plan.param_dtype: \"{}\" is not supported yet; use fp32, bf16 or fp16", *name);
}

}  // namespace shardloom::trainer
