#include "shardloom/trainer/offload_tally.h"

#include <utility>

namespace shardloom::trainer {

std::optional<OffloadMetrics> OffloadTally::take() {
  if (offload_ == nullptr) return std::nullopt;
  const features::OffloadCounters now = offload_->counters();
  const features::OffloadCounters before = std::exchange(before_, now);
  return OffloadMetrics{
      now.bytes_to_host - before.bytes_to_host, now.bytes_to_device - before.bytes_to_device,
      now.late_fetches - before.late_fetches, (now.seconds_waiting - before.seconds_waiting) * 1e3};
}

}  // namespace shardloom::trainer
