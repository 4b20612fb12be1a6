#include "shardloom/nn/module.h"

namespace shardloom::nn {
namespace {

std::string child_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void run_from(const std::shared_ptr<Call>& call, size_t index) {
  const auto& wrappers = call->module().wrappers();
  if (index == wrappers.size()) {
    call->run_forward();
    return;
  }
  wrappers[index]->around(call, [call, index] { run_from(call, index + 1); });
}

}  // namespace

void run_wrapped(const std::shared_ptr<Call>& call) { run_from(call, 0); }

void Module::register_parameter(std::string name, at::Tensor& tensor) {
  parameters_.push_back({std::move(name), &tensor});
}

void Module::register_buffer(std::string name, at::Tensor& tensor) {
  buffers_.push_back({std::move(name), &tensor});
}

void Module::register_module(std::string name, Module& child) {
  children_.emplace_back(std::move(name), &child);
}

void Module::collect(const std::string& prefix, bool buffers, std::vector<NamedTensor>& out) const {
  for (const NamedTensor& own : buffers ? buffers_ : parameters_) {
    out.push_back({child_name(prefix, own.name), own.tensor});
  }
  for (const auto& [name, child] : children_)
    child->collect(child_name(prefix, name), buffers, out);
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> out;
  collect("", false, out);
  return out;
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> out;
  collect("", true, out);
  return out;
}

void Module::collect_modules(const std::string& prefix,
                             std::vector<std::pair<std::string, Module*>>& out) {
  out.emplace_back(prefix, this);
  for (const auto& [name, child] : children_) child->collect_modules(child_name(prefix, name), out);
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> out;
  collect_modules("", out);
  return out;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

}  // namespace shardloom::nn
