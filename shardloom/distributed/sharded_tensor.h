// A tensor whose rows are spread over the ranks of a group (DTensor with placement Shard(0)).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"

namespace shardloom::distributed {

// Rows of one rank when `rows` are cut into `size` chunks as torch.chunk does: ceil(rows / size)
// each, the last ranks less or none.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};
RowRange shard_rows(int64_t rows, int rank, int size);

struct ShardedTensor {
  std::string name;
  at::Tensor local;            // rows [first_row, first_row + local.size(0)); shares the storage
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first_row = 0;
  std::shared_ptr<Group> group;  // null, or of size 1: `local` is the whole tensor

  // A tensor that this process holds whole.
  static ShardedTensor whole(std::string name, at::Tensor tensor);
};

// Collective over the group: rows [first, first + count) of the whole tensor, on every rank. One
// broadcast for each rank that owns some of them; no rank holds more than the result.
at::Tensor gather_rows(const ShardedTensor& tensor, int64_t first, int64_t count);

}  // namespace shardloom::distributed
