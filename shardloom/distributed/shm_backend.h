// Collectives of ranks on one host over shared memory, for CPU tensors.
//
// Reductions add in rank order with one rounding (shm_backend_reduce.h), so every rank gets the
// same bits whatever the timing, and the bits of a serial sum. Calls return at once; one thread a
// group runs the collectives in the order of issue, which must be the same on all ranks.
// Work::wait() throws DistributedError naming rank, group, collective and its number when a rank
// ends, leaves, asks for something else, or does not come in time (Options.timeout, or the one of
// the call); the group has then failed for good, on all ranks.
//
// Inputs may have any strides; outputs must be contiguous. Tensors must not be written while the
// work is open. all_gather, all_to_all and broadcast take any element type, reductions those of
// can_reduce().
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shardloom/distributed/shm_backend_group.h"
#include "shardloom/distributed/shm_backend_operation.h"
#include "shardloom/distributed/shm_backend_runner.h"

namespace shardloom::distributed {

class ShmWork;

class ShmBackend : public c10d::Backend {
 public:
  // Collective; the store must be the group's own (a PrefixStore). Throws DistributedError.
  ShmBackend(c10d::Store& store,
             int rank,
             std::vector<int> world_ranks,
             const std::string& group_name,
             std::chrono::milliseconds timeout);
  // Leaves the group. Collectives that are still open fail, here and on the other ranks.
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  // Fails all open and later collectives of the group, on all ranks.
  void abort() override;

  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = c10d::AllgatherOptions()) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::AllgatherOptions& options = c10d::AllgatherOptions()) override;
  // Several tensors in one collective, each into its own output; they may have several types.
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = c10d::AllgatherOptions()) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      std::vector<at::Tensor>& outputs,
      std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ReduceScatterOptions& options = c10d::ReduceScatterOptions()) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::ReduceScatterOptions& options = c10d::ReduceScatterOptions()) override;
  // Several tensors of one type.
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options = c10d::ReduceScatterOptions()) override;
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options = c10d::AllreduceOptions()) override;
  // Splits are rows of dimension 0; empty lists split evenly.
  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& options = c10d::AllToAllOptions()) override;
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& options = c10d::BroadcastOptions()) override;
  c10::intrusive_ptr<c10d::Work> barrier(
      const c10d::BarrierOptions& options = c10d::BarrierOptions()) override;

 private:
  ShmOperation new_operation(ShmKind kind,
                             const at::Tensor& like,
                             std::chrono::milliseconds timeout) const;
  void require_reduction(const ShmOperation& operation) const;
  c10::intrusive_ptr<c10d::Work> issue(ShmOperation operation, std::vector<at::Tensor> outputs);
  void work_loop();
  // The text of what went wrong.
  std::optional<std::string> run(const ShmOperation& operation);

  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<ShmGroup> group_;  // shared with the works, which ask it who is missing
  ShmRunner runner_;
  std::mutex mutex_;
  std::condition_variable issued_;
  std::deque<c10::intrusive_ptr<ShmWork>> queue_;  // the front one is running
  uint64_t sequence_ = 0;
  bool closing_ = false;
  std::thread worker_;
};

}  // namespace shardloom::distributed
