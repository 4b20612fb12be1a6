#include "shardloom/features/offloaded_storage.h"

namespace shardloom::features {
namespace {

// All bytes of a storage.
at::Tensor bytes_of(const c10::Storage& storage) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, options).set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
}

}  // namespace

OffloadTraffic::Lane& OffloadTraffic::lane(c10::Device device) {
  auto& lane = lanes_[device.str()];
  if (lane == nullptr) lane = std::make_unique<Lane>(device);
  return *lane;
}

OffloadCounters OffloadTraffic::counters() const {
  OffloadCounters sum = counters_;
  for (const auto& [device, lane] : lanes_) {
    sum.host_bytes += lane->arena.num_bytes();
    sum.seconds_waiting += lane->stream.seconds();
  }
  return sum;
}

OffloadedStorage::OffloadedStorage(const c10::Storage& source,
                                   std::shared_ptr<OffloadTraffic> traffic)
    : traffic_(std::move(traffic)),
      lane_(traffic_->lane(source.device())),
      num_bytes_(static_cast<int64_t>(source.nbytes())),
      host_(lane_.arena.take(num_bytes_)) {
  // Nobody waits for it: the copy back is behind it on the same stream.
  lane_.stream.start(host_.narrow(0, 0, num_bytes_), bytes_of(source));
  traffic_->counters_.bytes_to_host += num_bytes_;
}

// Copies of a lane keep their order, so that the next user of the block cannot overtake this one.
OffloadedStorage::~OffloadedStorage() { lane_.arena.give_back(std::move(host_)); }

void OffloadedStorage::prefetch() {
  if (fetched_.defined()) return;
  const at::NoGradGuard no_grad;
  fetched_ =
      at::empty({num_bytes_}, at::TensorOptions().dtype(at::kByte).device(lane_.stream.device()));
  to_device_ = lane_.stream.start(fetched_, host_.narrow(0, 0, num_bytes_));
  traffic_->counters_.bytes_to_device += num_bytes_;
}

c10::Storage OffloadedStorage::get() {
  prefetch();
  if (!lane_.stream.join(to_device_)) ++traffic_->counters_.late_fetches;
  const c10::Storage storage = fetched_.storage();
  if (++served_ >= users_) {
    fetched_.reset();
    served_ = 0;
  }
  return storage;
}

void BlockRecord::prefetch_previous() {
  if (std::exchange(is_reached_, true)) return;
  const auto previous = previous_.lock();
  if (previous == nullptr) return;
  for (const auto& weak : previous->storages_) {
    if (const auto storage = weak.lock()) storage->prefetch();
  }
}

}  // namespace shardloom::features
