// One recomputed call between its forward and the end of its backward, for RecomputeMode
// kSavedTensors.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shardloom/features/repeatable_call.h"
#include "shardloom/features/saved_tensor_hooks.h"

namespace shardloom::features {

// Owned by the saved tensors of the call: the frame and the call's inputs live until the last of
// them is released.
class RecomputeFrame : public std::enable_shared_from_this<RecomputeFrame> {
 public:
  // `may_stop_early`: an exception may leave the call in the middle of its second run.
  RecomputeFrame(std::string module, RepeatableCall call, bool may_stop_early)
      : module_(std::move(module)), call_(std::move(call)), may_stop_early_(may_stop_early) {}

  // For the scope of the first run: keeps places instead of tensors.
  std::shared_ptr<SavedTensorHooks> forward_hooks();
  RepeatableCall& call() { return call_; }

 private:
  friend class FirstRunHooks;
  friend class SecondRunHooks;
  friend class Place;

  struct Facts {
    std::vector<int64_t> shape;
    at::ScalarType dtype;
    c10::Device device;

    bool operator==(const Facts&) const = default;
    std::string text() const;
    static Facts of(const at::Tensor& tensor);
  };
  struct Slot {
    std::weak_ptr<PackedTensor> place;  // expired: nobody will ask
    Facts facts;
  };

  std::shared_ptr<PackedTensor> add(const at::Tensor& variable);
  // The tensor of slot `index`; runs the call again unless this backward pass did.
  at::Tensor take(size_t index);
  void run_again();
  void collect(const at::Tensor& variable);

  std::string module_;
  RepeatableCall call_;
  bool may_stop_early_;
  std::vector<Slot> slots_;

  std::mutex mutex_;  // of what follows: backward may run on the threads of several devices
  std::vector<UnchangedTensor> found_;
  size_t num_found_ = 0;
  int found_for_ = -1;  // backward pass (graph task) that found_ belongs to
};

}  // namespace shardloom::features
