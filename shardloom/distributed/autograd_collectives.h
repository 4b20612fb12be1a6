// Collectives that autograd sees. Each is linear; its backward is the transposed collective,
// without any scale: a loss is the sum of the ranks' losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"

namespace shardloom::distributed {

// Rows of dim 0: input_splits[r] of them go to rank r, output_splits[r] come from it. Backward
// sends the gradients back.
at::Tensor all_to_all_rows(const at::Tensor& input,
                           const std::vector<int64_t>& output_splits,
                           const std::vector<int64_t>& input_splits,
                           const std::shared_ptr<Group>& group,
                           const std::string& label);

// Joins the parts of all ranks along `dim`; sizes[r] is the part of rank r. Backward sums the
// ranks' gradients of each part (in rank order on the shm backend).
at::Tensor gather_along(const at::Tensor& part,
                        int64_t dim,
                        const std::vector<int64_t>& sizes,
                        const std::shared_ptr<Group>& group,
                        const std::string& label);

// The ranks' sum of one's own part along `dim`; `whole` has the same shape on every rank. Backward
// joins the gradients of the parts.
at::Tensor reduce_along(const at::Tensor& whole,
                        int64_t dim,
                        const std::vector<int64_t>& sizes,
                        const std::shared_ptr<Group>& group,
                        const std::string& label);

}  // namespace shardloom::distributed
