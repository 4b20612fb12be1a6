#include "shardloom/optim/clip_grad.h"

namespace shardloom::optim {
namespace {

constexpr int64_t kBlock = 4096;

double block_sum(const float* x, int64_t count) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int k = 0; k < 16; ++k) lanes[k] += x[i + k] * x[i + k];
  }
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

double squared_norm(const at::Tensor& grad) {
  if (!grad.is_cpu()) return grad.to(at::kFloat).pow(2).sum(at::kDouble).item<double>();
  const at::Tensor dense = grad.contiguous().to(at::kFloat);
  const float* data = dense.const_data_ptr<float>();
  const int64_t count = dense.numel();
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> sums(blocks);
  at::parallel_for(0, blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      sums[b] = block_sum(data + b * kBlock, std::min(kBlock, count - b * kBlock));
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double squared_norm(const std::vector<OptimizedTensor>& tensors) {
  double total = 0;
  for (const auto& t : tensors) {
    if (t.grad.defined()) total += squared_norm(t.grad);
  }
  return total;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

std::string first_non_finite(const std::vector<OptimizedTensor>& tensors) {
  for (const auto& t : tensors) {
    if (t.grad.defined() && !at::isfinite(t.grad).all().item<bool>()) return t.name;
  }
  return {};
}

}  // namespace shardloom::optim
