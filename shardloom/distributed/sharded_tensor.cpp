#include "shardloom/distributed/sharded_tensor.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "shardloom/base/error.h"

namespace shardloom::distributed {

RowRange shard_rows(int64_t rows, int rank, int size) {
  const int64_t chunk = (rows + size - 1) / size;
  const int64_t first = std::min(rank * chunk, rows);
  return {first, std::min(chunk, rows - first)};
}

ShardedTensor ShardedTensor::whole(std::string name, at::Tensor tensor) {
  std::vector<int64_t> shape = tensor.sizes().vec();
  return {.name = std::move(name), .local = std::move(tensor), .shape = std::move(shape)};
}

at::Tensor gather_rows(const ShardedTensor& tensor, int64_t first, int64_t count) {
  const at::NoGradGuard no_grad;
  SHARDLOOM_CHECK(
      !tensor.shape.empty() && first >= 0 && count >= 0 && first + count <= tensor.shape[0],
      "rows {} to {} of {}", first, first + count, tensor.name);
  std::vector<int64_t> shape = tensor.shape;
  shape[0] = count;
  at::Tensor rows = at::empty(shape, tensor.local.options());
  const int size = tensor.group == nullptr ? 1 : tensor.group->size();
  const int rank = tensor.group == nullptr ? 0 : tensor.group->rank();
  std::vector<Pending> pending;
  for (int owner = 0; owner < size; ++owner) {
    const RowRange owned = shard_rows(tensor.shape[0], owner, size);
    const int64_t begin = std::max(first, owned.first);
    const int64_t length = std::min(first + count, owned.first + owned.count) - begin;
    if (length <= 0) continue;
    at::Tensor part = rows.narrow(0, begin - first, length);
    if (owner == rank) part.copy_(tensor.local.narrow(0, begin - tensor.first_row, length));
    if (size > 1) pending.push_back(tensor.group->broadcast(part, owner, tensor.name));
  }
  for (Pending& part : pending) part.wait();
  return rows;
}

}  // namespace shardloom::distributed
