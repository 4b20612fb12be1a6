// The call seam: how wrappers (fully_shard, offload, recompute) stand around a module's forward.
//
// A wrapped call owns copies of its arguments (tensors are handles, so this is cheap), so that a
// wrapper may run the inner call again later, in the backward pass. Any method of a module may be
// called through the seam; wrappers do not see which one it was.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardloom::nn {

class Module;

// Calls f(Tensor&) for each tensor inside a value: Tensor, optional, vector, tuple, or a struct
// that has a member template visit_tensors(f). Other types hold no tensors.
template <typename T, typename F>
void visit_tensors(T& value, F&& f) {
  if constexpr (std::is_same_v<std::remove_cv_t<T>, at::Tensor>) {
    if constexpr (!std::is_const_v<T>) f(value);
  } else if constexpr (requires { value.visit_tensors(f); }) {
    value.visit_tensors(f);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) visit_tensors(*value, f);
  } else if constexpr (requires {
                         value.begin()->defined();
                         value.end();
                       }) {
    for (auto& item : value) visit_tensors(item, f);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... items) { (visit_tensors(items, f), ...); }, value);
  }
}

// One call in progress, as wrappers see it.
class Call {
 public:
  explicit Call(Module& module) : module_(module) {}
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Module& module() { return module_; }
  // References to the tensors among the arguments; assigning to them changes what forward receives.
  virtual std::vector<at::Tensor*> inputs() = 0;
  // References to the tensors of the result of the last run_forward().
  virtual std::vector<at::Tensor*> outputs() = 0;
  // Runs the module's forward on the present arguments and keeps the result.
  virtual void run_forward() = 0;

 private:
  Module& module_;
};

// Stands around the calls of one module. `inner` runs the wrappers further inside and then forward;
// it may be kept (it holds the call) and run again.
class CallWrapper {
 public:
  virtual ~CallWrapper() = default;
  virtual void around(const std::shared_ptr<Call>& call, const std::function<void()>& inner) = 0;
};

template <typename Forward, typename Result, typename... Args>
class BoundCall final : public Call {
 public:
  template <typename... Given>
  BoundCall(Module& module, Forward forward, Given&&... given)
      : Call(module), forward_(std::move(forward)), args_(std::forward<Given>(given)...) {}

  std::vector<at::Tensor*> inputs() override { return collect(args_); }
  std::vector<at::Tensor*> outputs() override {
    return result_ ? collect(*result_) : std::vector<at::Tensor*>();
  }
  void run_forward() override {
    std::apply([&](auto&... args) { result_.emplace(forward_(args...)); }, args_);
  }
  Result take_result() { return std::move(*result_); }

 private:
  template <typename T>
  static std::vector<at::Tensor*> collect(T& value) {
    std::vector<at::Tensor*> tensors;
    visit_tensors(value, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
    return tensors;
  }

  Forward forward_;
  std::tuple<Args...> args_;
  std::optional<Result> result_;
};

// Runs the wrappers of call->module(), outermost first, then forward.
void run_wrapped(const std::shared_ptr<Call>& call);

}  // namespace shardloom::nn
