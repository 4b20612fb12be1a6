#include "shardloom/features/copy_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

namespace shardloom::features {

CopyStream::CopyStream(c10::Device device) : device_(device) {
  if (!device.is_cpu())
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

CopyStream::Copy CopyStream::start(const at::Tensor& dst, const at::Tensor& src) {
  if (!stream_) {
    const auto begin = std::chrono::steady_clock::now();
    dst.copy_(src);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::nullopt;
  }
  const c10::impl::VirtualGuardImpl device(device_.type());
  c10::Event ready(device_.type());
  ready.record(device.getStream(device_));
  ready.block(*stream_);
  {
    const c10::StreamGuard guard(*stream_);
    dst.copy_(src, /*non_blocking=*/true);
  }
  const at::Tensor& on_device = dst.is_cpu() ? src : dst;
  device.recordDataPtrOnStream(on_device.storage().data_ptr(), *stream_);
  c10::Event done(device_.type());
  done.record(*stream_);
  return done;
}

bool CopyStream::join(Copy& copy) const {
  if (!copy) return true;
  const bool in_time = copy->query();
  copy->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  copy.reset();
  return in_time;
}

}  // namespace shardloom::features
