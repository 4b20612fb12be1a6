// The default random generators' states, so that a part of the forward pass can run again with the
// same draws.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace shardloom::features {

class RngState {
 public:
  // Of the CPU and of the devices of `tensors`.
  static RngState of(const std::vector<at::Tensor*>& tensors);
  // Puts the generators back into this state.
  void restore() const;
  // The present state of the same generators.
  RngState now() const;

 private:
  explicit RngState(const std::vector<c10::Device>& devices);

  struct GeneratorState {
    c10::Device device;
    at::Tensor state;
  };
  std::vector<GeneratorState> generators_;
};

// Runs its scope in state `inside` and puts the present one back at its end.
class RngScope {
 public:
  explicit RngScope(const RngState& inside) : outside_(inside.now()) { inside.restore(); }
  ~RngScope() { outside_.restore(); }
  RngScope(const RngScope&) = delete;
  RngScope& operator=(const RngScope&) = delete;

 private:
  RngState outside_;
};

}  // namespace shardloom::features
