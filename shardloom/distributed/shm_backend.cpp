#include "shardloom/distributed/shm_backend.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/distributed/shm_backend_reduce.h"

namespace shardloom::distributed {

using Work = c10::intrusive_ptr<c10d::Work>;

class ShmWork : public c10d::Work {
 public:
  ShmWork(std::shared_ptr<ShmGroup> group,
          ShmOperation operation,
          std::vector<at::Tensor> outputs,
          c10d::OpType type)
      : c10d::Work(group->rank(), type),
        group_(std::move(group)),
        operation_(std::move(operation)),
        outputs_(std::move(outputs)) {}

  const ShmOperation& operation() const { return operation_; }
  uint64_t getSequencenumber() const override { return operation_.sequence; }
  std::vector<at::Tensor> result() override { return outputs_; }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (timeout == kNoTimeout) {
      cv_.wait(lock, [this] { return completed_; });
    } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
      const ShmContext context =
          make_context(kind_name(operation_.kind), operation_.sequence, timeout);
      throw DistributedError("{}not done after {} ms; not arrived: {}", group_->place(context),
                             timeout.count(), group_->missing(operation_.sequence));
    }
    // Made anew, so that no thread reads an exception object that another may be freeing.
    if (error_) throw DistributedError(*error_);
    return true;
  }

  // Lets go of the inputs, too.
  void complete(std::optional<std::string> error) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      operation_.tensors.clear();
      error_ = error;
    }
    finish(error ? std::make_exception_ptr(DistributedError(*error)) : nullptr);
  }

 private:
  std::shared_ptr<ShmGroup> group_;
  ShmOperation operation_;
  std::vector<at::Tensor> outputs_;
  std::optional<std::string> error_;
};

namespace {

c10d::OpType op_type(ShmKind kind) {
  switch (kind) {
    case ShmKind::kAllGather:
      return c10d::OpType::ALLGATHER;
    case ShmKind::kReduceScatter:
      return c10d::OpType::REDUCE_SCATTER;
    case ShmKind::kAllReduce:
      return c10d::OpType::ALLREDUCE;
    case ShmKind::kAllToAll:
      return c10d::OpType::ALLTOALL_BASE;
    case ShmKind::kBroadcast:
      return c10d::OpType::BROADCAST;
    case ShmKind::kBarrier:
      break;
  }
  return c10d::OpType::BARRIER;
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

ShmSpan span_of(const at::Tensor& tensor) {
  return {bytes_of(tensor), static_cast<int64_t>(tensor.nbytes())};
}

// `size` spans that follow each other, of `parts` bytes.
std::vector<ShmRange> split_spans(const at::Tensor& tensor, const std::vector<int64_t>& parts) {
  std::vector<ShmRange> spans;
  std::byte* data = bytes_of(tensor);
  for (const int64_t bytes : parts) {
    spans.emplace_back(ShmSpan{data, bytes});
    if (bytes > 0) data += bytes;
  }
  return spans;
}

std::vector<ShmSpan> even_spans(const at::Tensor& tensor, int size) {
  const int64_t bytes = static_cast<int64_t>(tensor.nbytes()) / size;
  std::vector<ShmSpan> spans;
  for (int i = 0; i < size; ++i) spans.push_back({bytes_of(tensor) + i * bytes, bytes});
  return spans;
}

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw DistributedError(fmt::format(format, std::forward<Args>(args)...));
}

void check_output(const char* name, const at::Tensor& output, const at::Tensor& input) {
  require(output.is_contiguous() && output.is_cpu(),
          "{}: the output must be a contiguous CPU tensor", name);
  require(input.is_cpu(), "{}: the input must be a CPU tensor", name);
  require(output.scalar_type() == input.scalar_type(), "{}: the output is {}, the input {}", name,
          c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
}

void require_pairs(const char* name,
                   const std::vector<at::Tensor>& outputs,
                   const std::vector<at::Tensor>& inputs) {
  require(!inputs.empty() && outputs.size() == inputs.size(), "{}: {} outputs for {} inputs", name,
          outputs.size(), inputs.size());
}

// Bytes of each split of dimension 0.
std::vector<int64_t> split_bytes(const char* what,
                                 const at::Tensor& tensor,
                                 const std::vector<int64_t>& splits,
                                 int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    require(rows % size == 0, "all_to_all: {} rows of the {} do not split into {} equal parts",
            rows, what, size);
    return std::vector<int64_t>(size, static_cast<int64_t>(tensor.nbytes()) / size);
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  require(static_cast<int>(splits.size()) == size && sum == rows,
          "all_to_all: {} {} splits with the sum {} for {} rows and {} ranks", splits.size(), what,
          sum, rows, size);
  std::vector<int64_t> bytes;
  for (const int64_t split : splits) {
    require(split >= 0, "all_to_all: {} split {} is negative", what, split);
    bytes.push_back(rows == 0 ? 0 : split * (static_cast<int64_t>(tensor.nbytes()) / rows));
  }
  return bytes;
}

}  // namespace

ShmBackend::ShmBackend(c10d::Store& store,
                       int rank,
                       std::vector<int> world_ranks,
                       const std::string& group_name,
                       std::chrono::milliseconds timeout)
    : Backend(rank, static_cast<int>(world_ranks.size())),
      options_(c10::make_intrusive<Options>("shm", timeout)),
      group_(std::make_shared<ShmGroup>(store, rank, std::move(world_ranks), group_name, timeout)),
      runner_(*group_),
      worker_([this] { work_loop(); }) {
  options_->group_name = group_name;
}

ShmBackend::~ShmBackend() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    if (!queue_.empty()) {
      group_->fail(fmt::format("rank {} left the group with {} collectives open",
                               group_->world_rank(), queue_.size()));
    }
  }
  issued_.notify_one();
  worker_.join();
  group_->leave();
}

uint64_t ShmBackend::getSequenceNumberForGroup() {
  std::lock_guard<std::mutex> lock(mutex_);
  return sequence_;
}

void ShmBackend::abort() { group_->fail(fmt::format("aborted by rank {}", group_->world_rank())); }

void ShmBackend::work_loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    issued_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const c10::intrusive_ptr<ShmWork> work = queue_.front();
    lock.unlock();
    std::optional<std::string> error = run(work->operation());
    lock.lock();
    queue_.pop_front();
    lock.unlock();
    work->complete(std::move(error));
    lock.lock();
  }
}

std::optional<std::string> ShmBackend::run(const ShmOperation& operation) {
  try {
    runner_.run(operation);
    return std::nullopt;
  } catch (const std::exception& error) {
    group_->fail(error.what());
    return error.what();
  }
}

ShmOperation ShmBackend::new_operation(ShmKind kind,
                                       const at::Tensor& like,
                                       std::chrono::milliseconds timeout) const {
  ShmOperation operation;
  operation.kind = kind;
  operation.timeout = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
  operation.send.resize(size_);
  operation.receive.resize(size_);
  if (like.defined()) {
    operation.dtype = like.scalar_type();
    operation.shape = like.sizes().vec();
  }
  return operation;
}

void ShmBackend::require_reduction(const ShmOperation& operation) const {
  require(can_reduce(operation.dtype, operation.reduce),
          "{}: reduction {} of {} is not supported by the shm backend", kind_name(operation.kind),
          static_cast<int>(operation.reduce), c10::toString(operation.dtype));
}

Work ShmBackend::issue(ShmOperation operation, std::vector<at::Tensor> outputs) {
  const c10d::OpType type = op_type(operation.kind);
  operation.tensors.insert(operation.tensors.end(), outputs.begin(), outputs.end());
  std::lock_guard<std::mutex> lock(mutex_);
  operation.sequence = ++sequence_;
  auto work = c10::make_intrusive<ShmWork>(group_, std::move(operation), std::move(outputs), type);
  queue_.push_back(work);
  issued_.notify_one();
  return work;
}

Work ShmBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                           std::vector<at::Tensor>& inputs,
                           const c10d::AllgatherOptions& options) {
  require(inputs.size() == 1 && outputs.size() == 1 && static_cast<int>(outputs[0].size()) == size_,
          "all_gather: wants one input and one list of {} outputs", size_);
  const at::Tensor input = inputs[0].contiguous();
  ShmOperation operation = new_operation(ShmKind::kAllGather, input, options.timeout);
  for (int peer = 0; peer < size_; ++peer) {
    check_output("all_gather", outputs[0][peer], input);
    operation.send[peer] = span_of(input);
    operation.receive[peer] = span_of(outputs[0][peer]);
  }
  operation.tensors = {input};
  return issue(std::move(operation), outputs[0]);
}

Work ShmBackend::_allgather_base(at::Tensor& output,
                                 at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  std::vector<at::Tensor> outputs = {output}, inputs = {input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Work ShmBackend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                 std::vector<at::Tensor>& inputs,
                                                 const c10d::AllgatherOptions& options) {
  require_pairs("all_gather", outputs, inputs);
  ShmOperation operation = new_operation(ShmKind::kAllGather, inputs[0], options.timeout);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor input = inputs[i].contiguous();
    check_output("all_gather", outputs[i], input);
    require(outputs[i].numel() == input.numel() * size_,
            "all_gather: {} elements from each of {} ranks do not fill an output of {}",
            input.numel(), size_, outputs[i].numel());
    const std::vector<ShmSpan> parts = even_spans(outputs[i], size_);
    for (int peer = 0; peer < size_; ++peer) {
      operation.send[peer].add(span_of(input));
      operation.receive[peer].add(parts[peer]);
    }
    operation.tensors.push_back(input);
  }
  return issue(std::move(operation), outputs);
}

Work ShmBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                std::vector<std::vector<at::Tensor>>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  require(outputs.size() == 1 && inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_,
          "reduce_scatter: wants one output and one list of {} inputs", size_);
  ShmOperation operation = new_operation(ShmKind::kReduceScatter, outputs[0], options.timeout);
  operation.reduce = options.reduceOp;
  require_reduction(operation);
  for (int peer = 0; peer < size_; ++peer) {
    const at::Tensor input = inputs[0][peer].contiguous();
    check_output("reduce_scatter", outputs[0], input);
    operation.send[peer] = span_of(input);
    operation.tensors.push_back(input);
  }
  operation.receive.assign(size_, span_of(outputs[0]));
  return issue(std::move(operation), outputs);
}

Work ShmBackend::_reduce_scatter_base(at::Tensor& output,
                                      at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  std::vector<at::Tensor> outputs = {output}, inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Work ShmBackend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                 std::vector<at::Tensor>& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  require_pairs("reduce_scatter", outputs, inputs);
  ShmOperation operation = new_operation(ShmKind::kReduceScatter, inputs[0], options.timeout);
  operation.reduce = options.reduceOp;
  require_reduction(operation);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor input = inputs[i].contiguous();
    check_output("reduce_scatter", outputs[i], input);
    require(input.scalar_type() == operation.dtype,
            "reduce_scatter: the inputs are {} and {}; all must have one type",
            c10::toString(operation.dtype), c10::toString(input.scalar_type()));
    require(input.numel() == outputs[i].numel() * size_,
            "reduce_scatter: an input of {} elements does not fill outputs of {} on {} ranks",
            input.numel(), outputs[i].numel(), size_);
    const std::vector<ShmSpan> parts = even_spans(input, size_);
    for (int peer = 0; peer < size_; ++peer) {
      operation.send[peer].add(parts[peer]);
      operation.receive[peer].add(span_of(outputs[i]));
    }
    operation.tensors.push_back(input);
  }
  return issue(std::move(operation), outputs);
}

Work ShmBackend::allreduce(std::vector<at::Tensor>& tensors,
                           const c10d::AllreduceOptions& options) {
  require(tensors.size() == 1, "all_reduce: wants one tensor");
  check_output("all_reduce", tensors[0], tensors[0]);
  ShmOperation operation = new_operation(ShmKind::kAllReduce, tensors[0], options.timeout);
  operation.reduce = options.reduceOp;
  require_reduction(operation);
  operation.send.assign(size_, span_of(tensors[0]));
  operation.receive = operation.send;
  return issue(std::move(operation), tensors);
}

Work ShmBackend::alltoall_base(at::Tensor& output,
                               at::Tensor& given,
                               std::vector<int64_t>& output_splits,
                               std::vector<int64_t>& input_splits,
                               const c10d::AllToAllOptions& options) {
  const at::Tensor input = given.contiguous();
  check_output("all_to_all", output, input);
  ShmOperation operation = new_operation(ShmKind::kAllToAll, input, options.timeout);
  operation.send = split_spans(input, split_bytes("input", input, input_splits, size_));
  operation.receive = split_spans(output, split_bytes("output", output, output_splits, size_));
  operation.tensors = {input};
  return issue(std::move(operation), {output});
}

Work ShmBackend::broadcast(std::vector<at::Tensor>& tensors,
                           const c10d::BroadcastOptions& options) {
  require(tensors.size() == 1 && options.rootRank >= 0 && options.rootRank < size_,
          "broadcast: wants one tensor and a root below {}, not {}", size_, options.rootRank);
  check_output("broadcast", tensors[0], tensors[0]);
  ShmOperation operation = new_operation(ShmKind::kBroadcast, tensors[0], options.timeout);
  operation.root = static_cast<int>(options.rootRank);
  if (operation.root == rank_) operation.send.assign(size_, span_of(tensors[0]));
  operation.receive[operation.root] = span_of(tensors[0]);
  return issue(std::move(operation), tensors);
}

Work ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return issue(new_operation(ShmKind::kBarrier, at::Tensor(), options.timeout), {});
}

}  // namespace shardloom::distributed
