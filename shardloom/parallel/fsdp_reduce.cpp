#include "shardloom/parallel/fsdp_reduce.h"

#include "shardloom/base/error.h"

namespace shardloom::parallel {
namespace {

using distributed::Reduction;

std::vector<FsdpParam*> trained(const ParamList& params) {
  std::vector<FsdpParam*> list;
  for (const auto& param : params) {
    if (param->requires_grad()) list.push_back(param.get());
  }
  return list;
}

// rows [size, n] of the wire <- the whole gradient, cut into padded chunks; the rest is zero.
void fill_rows(const at::Tensor& rows, const at::Tensor& grad) {
  if (!grad.defined()) {
    rows.zero_();
    return;
  }
  const int64_t n = rows.size(1);
  if (n == 0) return;
  const at::Tensor flat = grad.reshape({-1});
  const int64_t full = flat.numel() / n, rest = flat.numel() % n;
  if (full > 0) rows.narrow(0, 0, full).copy_(flat.narrow(0, 0, full * n).view({full, n}));
  if (full == rows.size(0)) return;
  rows.narrow(0, full, rows.size(0) - full).zero_();
  if (rest > 0) rows.select(0, full).narrow(0, 0, rest).copy_(flat.narrow(0, full * n, rest));
}

}  // namespace

int64_t GradientReducer::total_ranks() const {
  return int64_t{shard_->size()} * (replicate_ ? replicate_->size() : 1);
}

double GradientReducer::pre_divisor(at::ScalarType dtype) const {
  if (dtype != at::kHalf) return 1.0;
  const double factor = divide_factor.value_or(static_cast<double>(total_ranks()));
  double pre = 1.0;
  while (std::fmod(factor, pre) == 0 && factor / pre > pre) pre *= 2;
  return pre;
}

at::ScalarType GradientReducer::wire_dtype(const std::vector<FsdpParam*>& params) const {
  const at::ScalarType dtype = accumulation_dtype(*params[0]);
  for (const FsdpParam* param : params) {
    if (accumulation_dtype(*param) == dtype) continue;
    throw ConfigError(
        "fully_shard: the gradients of one unit have types {} ({}) and {} ({}); set reduce_dtype",
        c10::toString(dtype), params[0]->name(), c10::toString(accumulation_dtype(*param)),
        param->name());
  }
  return dtype;
}

std::vector<at::Tensor> GradientReducer::take_whole(const std::vector<FsdpParam*>& params,
                                                    at::ScalarType dtype) const {
  std::vector<at::Tensor> whole;
  for (FsdpParam* param : params) {
    const at::Tensor grad = param->take_gradient();
    const int64_t size = shard_->size(), n = param->shard_numel();
    if (grad.defined() && grad.scalar_type() == dtype && grad.numel() == size * n &&
        grad.is_contiguous()) {
      whole.push_back(grad.view({-1}));
      continue;
    }
    const at::Tensor padded = at::empty({size, n}, param->gathered().options().dtype(dtype));
    fill_rows(padded, grad);
    whole.push_back(padded.view({-1}));
  }
  return whole;
}

at::Tensor GradientReducer::pack(const std::vector<FsdpParam*>& params,
                                 at::ScalarType dtype) const {
  int64_t total = 0;
  for (const FsdpParam* param : params) total += param->shard_numel();
  const int64_t size = shard_->size();
  const auto options = at::TensorOptions().dtype(dtype).device(params[0]->gathered().device());
  at::Tensor wire = reduce_scatter.allocate(*shard_, {size, total}, options);
  int64_t offset = 0;
  for (FsdpParam* param : params) {
    fill_rows(wire.narrow(1, offset, param->shard_numel()), param->take_gradient());
    offset += param->shard_numel();
  }
  return wire;
}

void GradientReducer::move_locally(const std::vector<FsdpParam*>& params, at::ScalarType dtype) {
  for (FsdpParam* param : params) {
    at::Tensor grad = param->take_gradient();
    if (!grad.defined()) {
      grad = at::zeros({param->shard_numel()}, param->flat_shard().options());
    } else {
      grad = grad.reshape({-1}).to(dtype);
      if (divide_factor && *divide_factor != 1.0) grad = grad.div(*divide_factor);
    }
    param->add_sharded_gradient(grad.to(param->flat_shard().options()));
  }
}

int64_t GradientReducer::start(const ParamList& all, const std::string& label) {
  const std::vector<FsdpParam*> params = trained(all);
  if (params.empty()) return 0;
  const at::ScalarType dtype = wire_dtype(params);
  if (total_ranks() == 1 && !hook) {
    move_locally(params, dtype);
    return 0;
  }
  label_ = label;
  reduced_ = params;
  all_reduces_ = all_reduce_grads;
  const bool average = !divide_factor && !force_sum && dtype != at::kHalf;
  const double pre = pre_divisor(dtype);
  op_ = average ? Reduction::kAverage : Reduction::kSum;
  post_divisor_ = average ? 1.0 : divide_factor.value_or(static_cast<double>(total_ranks())) / pre;
  // The collective alone keeps what is sent from here on, and lets go of it when it is done.
  if (shard_->size() > 1 && reduce_scatter.is_default()) {
    std::vector<at::Tensor> inputs = take_whole(params, dtype);
    int64_t sent = 0;
    for (at::Tensor& input : inputs) {
      // A gradient may share its memory with others.
      if (pre != 1.0) input = input.div(pre);
      sent += input.numel();
    }
    output_ = at::empty({sent / shard_->size()}, inputs[0].options());
    pending_ = shard_->reduce_scatter(output_, std::move(inputs), op_, label);
    return sent;
  }
  at::Tensor wire = pack(params, dtype);
  if (pre != 1.0) wire.div_(pre);
  if (shard_->size() == 1) {
    output_ = wire.view({-1});
    return 0;
  }
  const int64_t sent = wire.numel();
  output_ = reduce_scatter.allocate(*shard_, {wire.size(1)}, wire.options());
  pending_ = reduce_scatter.custom != nullptr
                 ? reduce_scatter.custom->call(output_, wire.view({-1}), *shard_, op_, label)
                 : shard_->reduce_scatter(output_, wire.view({-1}), op_, label);
  return sent;
}

void GradientReducer::finish() {
  if (!is_open()) return;
  pending_.wait();
  pending_ = {};
  at::Tensor output = std::move(output_);
  output_.reset();
  if (replicate_) {
    if (partial_.defined()) {
      output = partial_.add_(output);
      partial_.reset();
    }
    if (!all_reduces_) {
      partial_ = std::move(output);
      return;
    }
    if (on_all_reduce) on_all_reduce(output.numel());
    replicate_->all_reduce(output, op_, label_).wait();
  }
  if (post_divisor_ != 1.0) output.div_(post_divisor_);
  if (hook) hook(output);
  int64_t offset = 0;
  for (FsdpParam* param : reduced_) {
    const at::Tensor own = output.narrow(0, offset, param->shard_numel());
    param->add_sharded_gradient(own.to(param->flat_shard().options()));
    offset += param->shard_numel();
  }
}

void GradientReducer::drop() {
  try {
    pending_.wait();
  } catch (const std::exception&) {
    // The reason that the reduction is dropped for is on its way to the user already.
  }
  pending_ = {};
  output_.reset();
  partial_.reset();
}

}  // namespace shardloom::parallel
