// Saved-tensor hooks (torch.autograd.graph.saved_tensors_hooks) without Python: what stands in the
// graph for the tensors that operations keep for their backward.
//
// Autograd asks its default engine for the hooks; shardloom installs an engine of its own that
// answers from a stack of scopes, one stack a thread. Without a scope nothing differs from torch.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace shardloom::features {

// Stands in the graph for one saved tensor.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  // The tensor's values, detached. Runs in backward, on the thread of the engine that needs them.
  virtual at::Tensor unpack() = 0;
};

class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  // What stands for `variable`; null keeps the tensor itself. Only variable.detach() may be kept:
  // the variable belongs to the graph, which would own itself. Runs without grad mode.
  virtual std::shared_ptr<PackedTensor> pack(const at::Tensor& variable) = 0;
};

// While it lives, tensors that operations of this thread save go through `hooks`. Scopes nest; the
// innermost alone sees a tensor. Operations under NoGrad save nothing.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(std::shared_ptr<SavedTensorHooks> hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

// Makes the engine that knows the scopes autograd's default. Wrappers and scopes call it when they
// are made; call it earlier where a backward pass could run before (an engine owns its threads).
void install_saved_tensor_engine();

// Detached values with the check that autograd makes of tensors that it keeps itself: get() throws
// InternalError when they were changed in place since.
class UnchangedTensor {
 public:
  UnchangedTensor() = default;
  explicit UnchangedTensor(const at::Tensor& variable)
      : tensor_(variable.detach()), version_(tensor_._version()) {}
  bool defined() const { return tensor_.defined(); }
  at::Tensor get() const;

 private:
  at::Tensor tensor_;
  int64_t version_ = 0;
};

// A trained parameter or a view of one. fully_shard frees and refills its memory, so that hooks
// must neither copy it nor count it as theirs.
bool is_parameter(const at::Tensor& variable);

}  // namespace shardloom::features
