// Base of all modules: a tree of named parameters, buffers and children, and the call seam.
//
// Names are those of the Python original ("encoder.layers.0.attn.qkv.weight"). Registration stores
// the ADDRESS of the member tensor, so that fully_shard can swap sharded and gathered tensors in
// place; modules therefore neither copy nor move.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardloom/nn/call.h"

namespace shardloom::nn {

struct NamedTensor {
  std::string name;
  at::Tensor* tensor;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters / buffers / modules below (and including) this one, depth first in order of
  // registration. Names are relative to this module; the module itself has the name "".
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<std::pair<std::string, Module*>> named_modules();

  // The tensors that this module itself owns.
  const std::vector<NamedTensor>& own_parameters() const { return parameters_; }
  const std::vector<std::pair<std::string, Module*>>& children() const { return children_; }

  // Sets training mode here and below (drop path acts only in training).
  void train(bool on = true);
  bool is_training() const { return training_; }

  // The wrapper added last stands outermost, around all that were there before.
  void add_wrapper(std::shared_ptr<CallWrapper> wrapper) {
    wrappers_.insert(wrappers_.begin(), std::move(wrapper));
  }
  // Outermost first.
  const std::vector<std::shared_ptr<CallWrapper>>& wrappers() const { return wrappers_; }

  // True when the module is called through the seam, so that wrappers on it run.
  virtual bool is_callable() const { return false; }

 protected:
  void register_parameter(std::string name, at::Tensor& tensor);
  void register_buffer(std::string name, at::Tensor& tensor);
  void register_module(std::string name, Module& child);

  // forward(args...) through the wrappers of this module; forward is a callable that lives as long
  // as the module.
  template <typename Forward, typename... Args>
  auto call_wrapped(Forward forward, Args&&... args) {
    using Result = std::decay_t<decltype(forward(args...))>;
    if (wrappers_.empty()) return Result(forward(std::forward<Args>(args)...));
    auto call = std::make_shared<BoundCall<Forward, Result, std::decay_t<Args>...>>(
        *this, std::move(forward), std::forward<Args>(args)...);
    run_wrapped(call);
    return call->take_result();
  }

 private:
  void collect(const std::string& prefix, bool buffers, std::vector<NamedTensor>& out) const;
  void collect_modules(const std::string& prefix,
                       std::vector<std::pair<std::string, Module*>>& out);

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::shared_ptr<CallWrapper>> wrappers_;
  bool training_ = true;
};

// Gives Derived (which has forward(args...)) the operator() that goes through the seam.
template <typename Derived>
class Callable : public Module {
 public:
  bool is_callable() const override { return true; }

  template <typename... Args>
  auto operator()(Args&&... args) {
    auto& self = static_cast<Derived&>(*this);
    return call_wrapped([&self](auto&&... given) { return self.forward(given...); },
                        std::forward<Args>(args)...);
  }
};

// A list of children named "0", "1", ...; has no forward of its own.
template <typename T>
class ModuleList : public Module {
 public:
  template <typename... Args>
  T& emplace_back(Args&&... args) {
    items_.push_back(std::make_unique<T>(std::forward<Args>(args)...));
    register_module(std::to_string(items_.size() - 1), *items_.back());
    return *items_.back();
  }
  size_t size() const { return items_.size(); }
  T& operator[](size_t i) { return *items_[i]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

}  // namespace shardloom::nn
