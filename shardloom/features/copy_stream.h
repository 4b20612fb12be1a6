// Copies between a device and host memory beside the computation. On a CPU the copies are made at
// once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace shardloom::features {

class CopyStream {
 public:
  explicit CopyStream(c10::Device device);

  // A copy under way; nullopt: done.
  using Copy = std::optional<c10::Event>;
  // dst.copy_(src), one of the two on the device, after all work issued on the device so far. The
  // memory of both may be given back at once; copies keep their order.
  Copy start(const at::Tensor& dst, const at::Tensor& src);
  // Work issued on the device from now on sees the copy. False: it has to wait for it.
  bool join(Copy& copy) const;

  c10::Device device() const { return device_; }
  // The host's time in copies that it made itself.
  double seconds() const { return seconds_; }

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;  // nullopt: CPU
  double seconds_ = 0;
};

}  // namespace shardloom::features
