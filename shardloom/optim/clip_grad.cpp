#include "shardloom/optim/clip_grad.h"

#include <algorithm>
#include <mutex>

namespace shardloom::optim {
namespace {

constexpr int64_t kElementsPerTask = 1 << 16;
constexpr int kLanes = 16;

// Squares of floats are exact in double.
double squared_row(const float* x, int64_t count) {
  double sum = 0;
  int64_t i = 0;
  if (count >= kLanes) {
    double lanes[kLanes] = {};
    for (; i + kLanes <= count; i += kLanes) {
      for (int k = 0; k < kLanes; ++k)
        lanes[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
    }
    for (int k = 0; k < 4; ++k)
      lanes[k] = (lanes[k] + lanes[k + 4]) + (lanes[k + 8] + lanes[k + 12]);
    sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void add_squares(const at::Tensor& grad, ExactSum& total) {
  if (grad.numel() == 0) return;
  const int64_t rows = grad.dim() == 0 ? 1 : grad.size(0);
  const int64_t columns = grad.numel() / rows;
  at::Tensor dense = grad.contiguous().view({rows, columns});
  if (!grad.is_cpu()) {
    dense = dense.to(at::kDouble).square_().sum(1).cpu();
    for (int64_t row = 0; row < rows; ++row) total.add(dense.const_data_ptr<double>()[row]);
    return;
  }
  const float* data = dense.const_data_ptr<float>();
  std::mutex mutex;
  at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerTask / columns),
                   [&](int64_t begin, int64_t end) {
                     ExactSum part;
                     for (int64_t row = begin; row < end; ++row)
                       part.add(squared_row(data + row * columns, columns));
                     const std::lock_guard lock(mutex);
                     total += part;
                   });
}

struct SumOfGroup {
  distributed::Group* group;
  at::Device device;  // where the group communicates
  ExactSum sum;
};

// One for each distinct group, in order of first appearance.
std::vector<SumOfGroup> local_sums(const std::vector<GradientShards>& sets) {
  std::vector<SumOfGroup> sums;
  for (const GradientShards& set : sets) {
    if (set.tensors.empty()) continue;
    auto found = std::find_if(sums.begin(), sums.end(),
                              [&](const SumOfGroup& s) { return s.group == set.group.get(); });
    if (found == sums.end()) {
      found = sums.insert(sums.end(),
                          {set.group.get(), set.tensors.front().value.device(), ExactSum()});
    }
    found->sum += squared_norm(set.tensors);
  }
  return sums;
}

ExactSum over_ranks(const SumOfGroup& local) {
  if (local.group == nullptr) return local.sum;
  ExactSum::Limbs limbs = local.sum.limbs();
  const at::Tensor here = at::from_blob(limbs.data(), {ExactSum::kLimbs}, at::kLong);
  const at::Tensor shared = here.to(local.device, /*non_blocking=*/false, /*copy=*/true);
  local.group->all_reduce(shared, distributed::Reduction::kSum, "gradient norm").wait();
  here.copy_(shared);
  return ExactSum::of_limbs(limbs);
}

}  // namespace

ExactSum squared_norm(const std::vector<OptimizedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  ExactSum total;
  for (const auto& t : tensors) {
    if (t.grad.defined()) add_squares(t.grad, total);
  }
  return total;
}

double squared_norm(const std::vector<GradientShards>& sets) {
  ExactSum total;
  for (const SumOfGroup& local : local_sums(sets)) total += over_ranks(local);
  return total.value();
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
