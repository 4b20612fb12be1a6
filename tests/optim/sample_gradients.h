// Gradients of several shapes, whose norm depends on the order of summation, and their shards.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "shardloom/distributed/sharded_tensor.h"
#include "shardloom/optim/adamw.h"

namespace shardloom::optim::testing {

// Matrices, a vector, a kernel, and tensors with fewer rows than ranks.
inline std::vector<OptimizedTensor> sample_gradients() {
  auto generator = at::detail::createCPUGenerator(3);
  std::vector<OptimizedTensor> tensors;
  const std::vector<std::vector<int64_t>> shapes = {{300, 1000},  {7, 33}, {301},
                                                    {5, 3, 2, 2}, {2},     {1, 1, 60}};
  for (const auto& shape : shapes) {
    const at::Tensor grad = at::randn(shape, generator).mul_(at::exp(at::randn(shape, generator)));
    tensors.push_back({std::to_string(tensors.size()), grad, grad});
  }
  return tensors;
}

inline std::vector<OptimizedTensor> shard_of(const std::vector<OptimizedTensor>& tensors,
                                             int rank,
                                             int size) {
  std::vector<OptimizedTensor> shards;
  for (const auto& t : tensors) {
    const distributed::RowRange rows = distributed::shard_rows(t.grad.size(0), rank, size);
    const at::Tensor local = t.grad.narrow(0, rows.first, rows.count);
    shards.push_back({t.name, local, local});
  }
  return shards;
}

}  // namespace shardloom::optim::testing
