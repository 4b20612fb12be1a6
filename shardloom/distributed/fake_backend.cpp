#include "shardloom/distributed/fake_backend.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace shardloom::distributed {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

class DoneWork : public c10d::Work {
 public:
  DoneWork(int rank, c10d::OpType type, uint64_t sequence, std::vector<at::Tensor> outputs)
      : c10d::Work(rank, type), sequence_(sequence), outputs_(std::move(outputs)) {
    finish();
  }

  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  uint64_t getSequencenumber() const override { return sequence_; }
  std::vector<at::Tensor> result() override { return outputs_; }

 private:
  uint64_t sequence_;
  std::vector<at::Tensor> outputs_;
};

}  // namespace

FakeBackend::FakeBackend(int rank, int size)
    : Backend(rank, size), options_(c10::make_intrusive<Options>("fake")) {}

Work FakeBackend::done(c10d::OpType type, std::vector<at::Tensor> outputs) {
  return c10::make_intrusive<DoneWork>(rank_, type, ++sequence_, std::move(outputs));
}

Work FakeBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                            std::vector<at::Tensor>& inputs,
                            const c10d::AllgatherOptions& /*options*/) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& output : outputs.at(0)) output.copy_(inputs.at(0));
  return done(c10d::OpType::ALLGATHER, outputs[0]);
}

Work FakeBackend::_allgather_base(at::Tensor& output,
                                  at::Tensor& input,
                                  const c10d::AllgatherOptions& /*options*/) {
  const at::NoGradGuard no_grad;
  output.view({size_, input.numel()}).copy_(input.reshape({1, input.numel()}));
  return done(c10d::OpType::_ALLGATHER_BASE, {output});
}

Work FakeBackend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                  std::vector<at::Tensor>& inputs,
                                                  const c10d::AllgatherOptions& /*options*/) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < inputs.size(); ++i)
    outputs[i].view({size_, inputs[i].numel()}).copy_(inputs[i].reshape({1, inputs[i].numel()}));
  return done(c10d::OpType::ALLGATHER_COALESCED, outputs);
}

Work FakeBackend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                  std::vector<at::Tensor>& /*inputs*/,
                                                  const c10d::ReduceScatterOptions& /*options*/) {
  return done(c10d::OpType::REDUCE_SCATTER, outputs);
}

Work FakeBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                 std::vector<std::vector<at::Tensor>>& /*inputs*/,
                                 const c10d::ReduceScatterOptions& /*options*/) {
  return done(c10d::OpType::REDUCE_SCATTER, outputs);
}

Work FakeBackend::_reduce_scatter_base(at::Tensor& output,
                                       at::Tensor& /*input*/,
                                       const c10d::ReduceScatterOptions& /*options*/) {
  return done(c10d::OpType::_REDUCE_SCATTER_BASE, {output});
}

Work FakeBackend::allreduce(std::vector<at::Tensor>& tensors,
                            const c10d::AllreduceOptions& /*options*/) {
  return done(c10d::OpType::ALLREDUCE, tensors);
}

Work FakeBackend::alltoall_base(at::Tensor& output,
                                at::Tensor& /*input*/,
                                std::vector<int64_t>& /*output_splits*/,
                                std::vector<int64_t>& /*input_splits*/,
                                const c10d::AllToAllOptions& /*options*/) {
  return done(c10d::OpType::ALLTOALL_BASE, {output});
}

Work FakeBackend::broadcast(std::vector<at::Tensor>& tensors,
                            const c10d::BroadcastOptions& /*options*/) {
  return done(c10d::OpType::BROADCAST, tensors);
}

Work FakeBackend::barrier(const c10d::BarrierOptions& /*options*/) {
  return done(c10d::OpType::BARRIER, {});
}

}  // namespace shardloom::distributed
