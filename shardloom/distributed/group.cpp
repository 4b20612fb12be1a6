#include "shardloom/distributed/group.h"

#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/distributed/collective_log.h"
#include "shardloom/distributed/foreign_error.h"

namespace shardloom::distributed {
namespace {

// "rank 1, group dp, all_gather #3 (label): ...". Texts of the shm backend bring the place along.
[[noreturn]] void throw_failed(const CollectiveLog& log,
                               const char* operation,
                               uint64_t sequence,
                               const std::string& label,
                               std::string_view text) {
  const std::string place = log.place(operation, sequence);
  text = short_text(text);
  for (const std::string& known : {place + ": ", std::string(operation) + ": "}) {
    if (text.starts_with(known)) {
      text.remove_prefix(known.size());
      break;
    }
  }
  throw DistributedError("{}{}: {}", place, label.empty() ? "" : fmt::format(" ({})", label), text);
}

void require_contiguous(const at::Tensor& output) {
  if (output.is_contiguous()) return;
  throw DistributedError("the output must be contiguous, its strides are {}",
                         fmt::join(output.strides(), ", "));
}

void require_average(const at::Tensor& output, Reduction reduction) {
  if (reduction != Reduction::kAverage || output.is_floating_point()) return;
  throw DistributedError("no average of {}; only of floating-point numbers",
                         c10::toString(output.scalar_type()));
}

}  // namespace

struct Pending::State : OpenCollective {
  explicit State(std::shared_ptr<CollectiveLog> group_log) : log(std::move(group_log)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { close(); }

  void close() {
    if (work == nullptr) return;
    log->close(*this);
    work.reset();
    divide_after.reset();
  }

  std::shared_ptr<CollectiveLog> log;
  at::Tensor divide_after;
};

void Pending::wait() {
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  if (state == nullptr || state->work == nullptr) return;
  try {
    state->work->wait();
    if (state->divide_after.defined()) {
      state->divide_after.detach().div_(static_cast<double>(state->log->ranks().size()));
    }
  } catch (const std::exception& error) {
    state->close();
    throw_failed(*state->log, state->operation, state->sequence, state->label, error.what());
  }
  state->close();
}

Group::Group(std::string name,
             std::vector<int> ranks,
             int rank,
             c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)) {
  SHARDLOOM_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks.size() &&
                      backend_->getRank() == rank &&
                      backend_->getSize() == static_cast<int>(ranks.size()),
                  "group {}: rank {} of {}, but rank {} of {} in its backend", name, rank,
                  ranks.size(), backend_->getRank(), backend_->getSize());
  log_ = std::make_shared<CollectiveLog>(std::move(name), std::move(ranks), rank);
  divides_itself_ = backend_->getBackendName() == "gloo";
}

Group::~Group() = default;

std::string Group::backend_name() const { return backend_->getBackendName(); }

Pending Group::start(const char* operation,
                     const std::string& label,
                     c10::function_ref<c10::intrusive_ptr<c10d::Work>()> issue,
                     at::Tensor divide_after) {
  auto state = std::make_shared<Pending::State>(log_);
  state->operation = operation;
  state->sequence = sequence_ + 1;
  state->label = label;
  state->divide_after = std::move(divide_after);
  try {
    state->work = issue();
  } catch (const std::exception& error) {
    throw_failed(*log_, operation, sequence_ + 1, label, error.what());
  }
  ++sequence_;
  state->issued = Clock::now();
  log_->open(*state);
  return Pending(std::move(state));
}

c10d::ReduceOp Group::reduce_op(Reduction reduction) const {
  switch (reduction) {
    case Reduction::kSum:
      break;
    case Reduction::kAverage:
      return divides_itself_ ? c10d::ReduceOp::SUM : c10d::ReduceOp::AVG;
    case Reduction::kMax:
      return c10d::ReduceOp::MAX;
    case Reduction::kMin:
      return c10d::ReduceOp::MIN;
  }
  return c10d::ReduceOp::SUM;
}

// What is to be divided when the sum is there.
at::Tensor Group::divide_after(const at::Tensor& output, Reduction reduction) const {
  return divides_itself_ && reduction == Reduction::kAverage ? output : at::Tensor();
}

Pending Group::all_gather(at::Tensor output, at::Tensor input, const std::string& label) {
  return start("all_gather", label, [&] {
    require_contiguous(output);
    at::Tensor part = input.contiguous();
    return backend_->_allgather_base(output, part);
  });
}

Pending Group::reduce_scatter(at::Tensor output,
                              at::Tensor input,
                              Reduction reduction,
                              const std::string& label) {
  const auto issue = [&] {
    require_contiguous(output);
    require_average(output, reduction);
    at::Tensor parts = input.contiguous();
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(reduction);
    return backend_->_reduce_scatter_base(output, parts, options);
  };
  return start("reduce_scatter", label, issue, divide_after(output, reduction));
}

Pending Group::all_gather(std::vector<at::Tensor> outputs,
                          std::vector<at::Tensor> inputs,
                          const std::string& label) {
  return start("all_gather", label, [&] {
    for (const at::Tensor& output : outputs) require_contiguous(output);
    for (at::Tensor& input : inputs) input = input.contiguous();
    return backend_->allgather_into_tensor_coalesced(outputs, inputs);
  });
}

Pending Group::reduce_scatter(at::Tensor output,
                              std::vector<at::Tensor> inputs,
                              Reduction reduction,
                              const std::string& label) {
  const auto issue = [&] {
    require_contiguous(output);
    require_average(output, reduction);
    std::vector<at::Tensor> outputs;
    int64_t offset = 0;
    for (at::Tensor& input : inputs) {
      input = input.contiguous();
      outputs.push_back(output.narrow(0, offset, input.numel() / size()));
      offset += outputs.back().numel();
    }
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(reduction);
    return backend_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
  };
  return start("reduce_scatter", label, issue, divide_after(output, reduction));
}

Pending Group::all_reduce(at::Tensor tensor, Reduction reduction, const std::string& label) {
  const auto issue = [&] {
    require_contiguous(tensor);
    require_average(tensor, reduction);
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(reduction);
    std::vector<at::Tensor> tensors = {tensor};
    return backend_->allreduce(tensors, options);
  };
  return start("all_reduce", label, issue, divide_after(tensor, reduction));
}

Pending Group::all_to_all(at::Tensor output,
                          at::Tensor input,
                          std::vector<int64_t> output_splits,
                          std::vector<int64_t> input_splits,
                          const std::string& label) {
  return start("all_to_all", label, [&] {
    require_contiguous(output);
    at::Tensor parts = input.contiguous();
    return backend_->alltoall_base(output, parts, output_splits, input_splits);
  });
}

Pending Group::broadcast(at::Tensor tensor, int root, const std::string& label) {
  return start("broadcast", label, [&] {
    require_contiguous(tensor);
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors = {tensor};
    return backend_->broadcast(tensors, options);
  });
}

void Group::barrier(const std::string& label) {
  start("barrier", label, [&] { return backend_->barrier(); }).wait();
}

at::Tensor Group::allocate(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!backend_->supportsTensorAlloc(options.device().index())) return at::empty(sizes, options);
  return backend_->allocateTensor(c10::multiply_integers(sizes), options).view(sizes);
}

}  // namespace shardloom::distributed
