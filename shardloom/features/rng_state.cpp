#include "shardloom/features/rng_state.h"

#include <mutex>

namespace shardloom::features {

RngState::RngState(const std::vector<c10::Device>& devices) {
  for (const c10::Device& device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generators_.push_back({device, generator.get_state()});
  }
}

RngState RngState::of(const std::vector<at::Tensor*>& tensors) {
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};
  for (const at::Tensor* tensor : tensors) {
    if (!tensor->defined() || tensor->is_cpu() || tensor->is_meta()) continue;
    if (std::find(devices.begin(), devices.end(), tensor->device()) == devices.end())
      devices.push_back(tensor->device());
  }
  return RngState(devices);
}

RngState RngState::now() const {
  std::vector<c10::Device> devices;
  for (const GeneratorState& g : generators_) devices.push_back(g.device);
  return RngState(devices);
}

void RngState::restore() const {
  for (const GeneratorState& g : generators_) {
    at::Generator generator = at::globalContext().defaultGenerator(g.device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(g.state);
  }
}

}  // namespace shardloom::features
