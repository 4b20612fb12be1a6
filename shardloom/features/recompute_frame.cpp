#include "shardloom/features/recompute_frame.h"

#include <torch/csrc/autograd/graph_task.h>

#include <fmt/ranges.h>

#include "shardloom/base/error.h"

namespace shardloom::features {
namespace {

// Leaves the second run when it has found everything. No std::exception, so that nobody on the way
// takes it for a failure.
struct StopRun {};

}  // namespace

class Place final : public PackedTensor {
 public:
  Place(std::shared_ptr<RecomputeFrame> frame, size_t index)
      : frame_(std::move(frame)), index_(index) {}
  at::Tensor unpack() override { return frame_->take(index_); }

 private:
  std::shared_ptr<RecomputeFrame> frame_;
  size_t index_;
};

class FirstRunHooks final : public SavedTensorHooks {
 public:
  explicit FirstRunHooks(std::shared_ptr<RecomputeFrame> frame) : frame_(std::move(frame)) {}
  std::shared_ptr<PackedTensor> pack(const at::Tensor& variable) override {
    return frame_->add(variable);
  }

 private:
  std::shared_ptr<RecomputeFrame> frame_;
};

class SecondRunHooks final : public SavedTensorHooks {
 public:
  explicit SecondRunHooks(RecomputeFrame& frame) : frame_(frame) {}
  std::shared_ptr<PackedTensor> pack(const at::Tensor& variable) override {
    frame_.collect(variable);
    return nullptr;
  }

 private:
  RecomputeFrame& frame_;
};

RecomputeFrame::Facts RecomputeFrame::Facts::of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.scalar_type(), tensor.device()};
}

std::string RecomputeFrame::Facts::text() const {
  return fmt::format("{} [{}] on {}", c10::toString(dtype), fmt::join(shape, ", "), device.str());
}

std::shared_ptr<SavedTensorHooks> RecomputeFrame::forward_hooks() {
  return std::make_shared<FirstRunHooks>(shared_from_this());
}

std::shared_ptr<PackedTensor> RecomputeFrame::add(const at::Tensor& variable) {
  auto place = std::make_shared<Place>(shared_from_this(), slots_.size());
  slots_.push_back({place, Facts::of(variable)});
  return place;
}

at::Tensor RecomputeFrame::take(size_t index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int task = torch::autograd::get_current_graph_task_id();
  const bool is_there = task != -1 && task == found_for_ && found_[index].defined();
  if (!is_there) {
    found_for_ = -1;
    try {
      run_again();
    } catch (...) {
      found_.clear();
      throw;
    }
    found_for_ = task;
  }
  // Handed out once: the node that asks is the only one that needs it.
  return std::exchange(found_[index], UnchangedTensor()).get();
}

void RecomputeFrame::run_again() {
  if (!call_.has_run()) {
    throw InternalError(
        "recompute: {} runs a backward pass through itself inside of its forward; take it out of "
        "recompute_plan.apply_modules",
        module_);
  }
  found_.assign(slots_.size(), UnchangedTensor());
  num_found_ = 0;
  Repetition repetition(call_);
  const SavedTensorScope scope(std::make_shared<SecondRunHooks>(*this));
  try {
    repetition.run();
  } catch (const StopRun&) {
  }
  if (num_found_ == slots_.size()) return;
  throw InternalError(
      "recompute: {} saved {} tensors in forward but {} when it ran again for backward; it must "
      "compute the same twice (no state that changes between the two runs)",
      module_, slots_.size(), num_found_);
}

void RecomputeFrame::collect(const at::Tensor& variable) {
  const size_t index = num_found_++;
  if (index >= slots_.size()) return;
  const Slot& slot = slots_[index];
  const Facts facts = Facts::of(variable);
  if (!(facts == slot.facts)) {
    throw InternalError(
        "recompute: saved tensor {} of {} in {} was {} in forward but is {} when it runs again for "
        "backward; it must compute the same twice (no state that changes between the two runs)",
        index, slots_.size(), module_, slot.facts.text(), facts.text());
  }
  if (!slot.place.expired()) found_[index] = UnchangedTensor(variable);
  if (num_found_ == slots_.size() && may_stop_early_) throw StopRun();
}

}  // namespace shardloom::features
