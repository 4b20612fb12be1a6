// Order of samples and the multi-threaded loader.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/data/dataset.h"

namespace shardloom::data {

struct SamplerOptions {
  int64_t num_samples = 0;
  int64_t micro_batch_size = 1;
  int dp_rank = 0;
  int dp_size = 1;
  bool shuffle = false;
  // The shuffle of epoch e is torch's randperm seeded with seed + e (training seed) or with e
  // alone (the reference's order, shuffle_seed: epoch).
  bool seed_by_epoch_only = false;
  uint64_t seed = 42;
};

// BaseRandomBatchSampler: global batch n takes the next micro_batch_size * dp_size entries of the
// epoch's order, rank r the entries r, r + dp_size, ...; the incomplete tail of an epoch is
// dropped. A pure function of the number of consumed samples, so any position can be resumed.
// Throws DataError when there are fewer samples than one global micro batch. The order of the
// present epoch is cached: one Sampler is for one thread at a time.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  // Indices of this rank's next micro batch after `consumed` samples (counted over all ranks).
  std::vector<int64_t> micro_batch(int64_t consumed) const;
  // consumed + micro_batch_size * dp_size. (A `consumed` counted with other sizes may leave a tail
  // that is too short for a global micro batch; that tail is dropped too.)
  int64_t advance(int64_t consumed) const;
  int64_t epoch(int64_t consumed) const;
  int64_t samples_per_epoch() const;  // without the dropped tail

 private:
  // `consumed`, or the start of the next epoch when the rest of its epoch is too short.
  int64_t batch_start(int64_t consumed) const;
  const std::vector<int64_t>& order_of(int64_t epoch) const;

  SamplerOptions options_;
  int64_t active_ = 0;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> order_;
};

// torch.randperm(n) of a CPU generator seeded with `seed` (mt19937, Fisher-Yates; n < 2^32 / 20).
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

enum class OnBadSample { kStop, kSkip };

struct LoaderOptions {
  int num_workers = 2;      // threads; 0 prepares in the calling thread
  int prefetch_factor = 2;  // micro batches in flight per worker
  OnBadSample on_bad_sample = OnBadSample::kStop;
};

// Yields micro batches for ever, in the sampler's order whatever the number of threads. next()
// rethrows the DataError of a bad sample when its turn comes; with kSkip the bad sample is left out
// (reported once) and its place stays empty, so that the order of all others does not change. A
// micro batch whose samples are all bad comes back with no sample (size 0).
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset,
         const SamplerOptions& sampler,
         const LoaderOptions& options,
         int64_t consumed_samples = 0);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  Batch next();
  // Samples consumed over all ranks up to the last next(): the whole state of the loader.
  int64_t consumed_samples() const;
  const Sampler& sampler() const;
  int64_t skipped_samples() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardloom::data
