// A process group as the rest of the program sees it: collectives that carry a label ("unit
// language_model.model.layers.3"), are counted, and are watched (watchdog.h). It adds nothing to
// the arithmetic of the backend below (c10d::Backend).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/collective_log.h"

namespace shardloom::distributed {

enum class Reduction {
  kSum,      // in rank order on the shm backend
  kAverage,  // the sum, then one division by the group's size
  kMax,
  kMin,
};

// A collective under way. Dropping it without wait() is safe: the tensors live until it is done.
class Pending {
 public:
  Pending() = default;  // nothing under way
  // Returns when the outputs are there. Throws DistributedError naming rank, group, operation,
  // number and label. Calls after the first return at once.
  void wait();
  bool is_open() const { return state_ != nullptr; }

 private:
  friend class Group;
  struct State;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Shared by all who use it (std::shared_ptr<Group>); calls come from one thread at a time and in
// the same order on all ranks. Outputs must be contiguous; no tensor may be written while it is in
// use.
class Group {
 public:
  // `ranks`: world ranks of the members in group order; `rank`: this process among them.
  Group(std::string name,
        std::vector<int> ranks,
        int rank,
        c10::intrusive_ptr<c10d::Backend> backend);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return log_->group(); }
  const std::vector<int>& ranks() const { return log_->ranks(); }
  int rank() const { return backend_->getRank(); }
  int size() const { return backend_->getSize(); }
  std::string backend_name() const;  // "shm", "gloo", "nccl", "fake"

  // output [size * n] <- input [n] of each rank in rank order; input may be the own part of output.
  Pending all_gather(at::Tensor output, at::Tensor input, const std::string& label = {});
  // Several at once, as one collective: outputs[i] [size * n_i] <- inputs[i] [n_i]. Types may
  // differ from tensor to tensor.
  Pending all_gather(std::vector<at::Tensor> outputs,
                     std::vector<at::Tensor> inputs,
                     const std::string& label = {});
  // output [n] <- reduction over ranks of part `rank` of input [size * n].
  Pending reduce_scatter(at::Tensor output,
                         at::Tensor input,
                         Reduction reduction,
                         const std::string& label = {});
  // Several at once, as one collective: output [sum of n_i] <- the results for inputs[i]
  // [size * n_i], one after the other. All have one type.
  Pending reduce_scatter(at::Tensor output,
                         std::vector<at::Tensor> inputs,
                         Reduction reduction,
                         const std::string& label = {});
  Pending all_reduce(at::Tensor tensor, Reduction reduction, const std::string& label = {});
  // Splits are rows of dim 0 to and from each rank.
  Pending all_to_all(at::Tensor output,
                     at::Tensor input,
                     std::vector<int64_t> output_splits,
                     std::vector<int64_t> input_splits,
                     const std::string& label = {});
  Pending broadcast(at::Tensor tensor, int root, const std::string& label = {});
  void barrier(const std::string& label = {});

  // Contiguous memory from the backend's own allocator, which its transfers are faster from; plain
  // memory when it has none for the device (c10d's supportsTensorAlloc).
  at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions& options);

  // What is under way here; for the watchdog.
  std::shared_ptr<const CollectiveLog> log() const { return log_; }

 private:
  Pending start(const char* operation,
                const std::string& label,
                c10::function_ref<c10::intrusive_ptr<c10d::Work>()> issue,
                at::Tensor divide_after = {});
  c10d::ReduceOp reduce_op(Reduction reduction) const;
  at::Tensor divide_after(const at::Tensor& output, Reduction reduction) const;

  std::shared_ptr<CollectiveLog> log_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  uint64_t sequence_ = 0;
  bool divides_itself_ = false;  // the backend sums, and Pending::wait() divides
};

}  // namespace shardloom::distributed
