// How the two collectives of a unit move their data, for those who want another way than the mesh's
// groups (torch.distributed.fsdp: AllGather, ReduceScatter).
#pragma once

#include <ATen/Functions.h>

#include <memory>
#include <string>

#include "shardloom/distributed/group.h"

namespace shardloom::parallel {

class Comm {
 public:
  virtual ~Comm() = default;
  // Memory for what is sent and received, contiguous; asked for at each collective.
  virtual at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions& options) = 0;
};

// Both calls come on every rank of `group` in the same order. What they return is waited for before
// the output is read; Pending() says that it is there already. `label` names the unit.
class AllGather : public Comm {
 public:
  // output [size * n] <- input [n] of each rank in rank order. The input is part `rank` of the
  // output.
  virtual distributed::Pending call(const at::Tensor& output,
                                    const at::Tensor& input,
                                    distributed::Group& group,
                                    const std::string& label) = 0;
};

class ReduceScatter : public Comm {
 public:
  // output [n] <- reduction over ranks of part `rank` of input [size * n].
  virtual distributed::Pending call(const at::Tensor& output,
                                    const at::Tensor& input,
                                    distributed::Group& group,
                                    distributed::Reduction reduction,
                                    const std::string& label) = 0;
};

// Where the staging memory of one kind of collective comes from and who runs it.
template <typename Custom>
struct CommChoice {
  std::shared_ptr<Custom> custom;     // null: the group's own
  bool allocates_from_group = false;  // memory that the backend registers for its transfers

  bool is_default() const { return custom == nullptr && !allocates_from_group; }
  at::Tensor allocate(distributed::Group& group,
                      at::IntArrayRef sizes,
                      const at::TensorOptions& options) const {
    if (custom != nullptr) return custom->allocate(sizes, options);
    return allocates_from_group ? group.allocate(sizes, options) : at::empty(sizes, options);
  }
};

}  // namespace shardloom::parallel
