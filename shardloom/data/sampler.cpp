#include <algorithm>
#include <numeric>
#include <random>

#include "shardloom/data/loader.h"

namespace shardloom::data {

namespace {

// Above this size torch draws 64-bit numbers, and the order would be another one.
void require_shuffles(int64_t n) {
  constexpr int64_t kLimit = int64_t{0xFFFFFFFF} / 20;
  if (n >= kLimit) throw DataError("cannot shuffle {} samples, at most {}", n, kLimit - 1);
}

}  // namespace

std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
  require_shuffles(n);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  // torch seeds its generator with the lower 32 bits.
  std::mt19937 generator(static_cast<uint32_t>(seed));
  for (int64_t i = 0; i + 1 < n; ++i) {
    const auto z = static_cast<int64_t>(generator() % static_cast<uint64_t>(n - i));
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(i + z)]);
  }
  return order;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  SHARDLOOM_CHECK(options.micro_batch_size >= 1, "micro_batch_size {}", options.micro_batch_size);
  SHARDLOOM_CHECK(options.dp_rank >= 0 && options.dp_rank < options.dp_size, "rank {} of {}",
                  options.dp_rank, options.dp_size);
  const int64_t global = options.micro_batch_size * options.dp_size;
  cut_ = options.cut.value_or(
      EpochCut{options.num_samples - options.num_samples % options.micro_batch_size,
               options.num_samples - options.num_samples % global});
  if (options.num_samples == 0) throw DataError("the data set has no samples");
  if (cut_.used == 0) {
    throw DataError(
        "the data set has {} samples, fewer than one micro batch of all ranks (micro_batch_size {} "
        "x "
        "{} data-parallel ranks = {}); use more data, fewer ranks or a smaller micro batch",
        options.num_samples, options.micro_batch_size, options.dp_size, global);
  }
  // Here, not in a worker of the loader.
  if (options.shuffle) require_shuffles(cut_.shuffled);
}

std::vector<int64_t> Sampler::micro_batch(int64_t consumed) const {
  SHARDLOOM_CHECK(consumed >= 0, "consumed {}", consumed);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < options_.micro_batch_size; ++i) {
    const int64_t entry = consumed + options_.dp_rank + i * options_.dp_size;
    const int64_t at = entry % cut_.used;
    indices.push_back(options_.shuffle ? order_of(epoch(entry))[static_cast<size_t>(at)] : at);
  }
  return indices;
}

const std::vector<int64_t>& Sampler::order_of(int64_t epoch) const {
  if (cached_epoch_ != epoch) {
    const uint64_t seed =
        static_cast<uint64_t>(epoch) + (options_.seed_by_epoch_only ? 0 : options_.seed);
    // As the reference: the tail that fills no micro batch is cut before, that which does not fill
    // all ranks after.
    order_ = torch_randperm(cut_.shuffled, seed);
    cached_epoch_ = epoch;
  }
  return order_;
}

int64_t Sampler::advance(int64_t consumed) const {
  return consumed + options_.micro_batch_size * options_.dp_size;
}

int64_t Sampler::epoch(int64_t consumed) const { return consumed / cut_.used; }

}  // namespace shardloom::data
