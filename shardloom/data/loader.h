// Order of samples and the multi-threaded loader.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/data/dataset.h"

namespace shardloom::data {

// What an epoch takes of the samples: so many are shuffled (or stand in file order), the first
// `used` of that order are.
struct EpochCut {
  int64_t shuffled = 0;
  int64_t used = 0;

  bool operator==(const EpochCut&) const = default;
};

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
  // That of the run that is continued, whatever sizes it had; by default the whole micro batches,
  // and of these the whole global micro batches, of num_samples.
  std::optional<EpochCut> cut;
};

// BaseRandomBatchSampler: global batch n takes the next micro_batch_size * dp_size entries of the
// epoch's order, rank r the entries r, r + dp_size, ...; the incomplete tail of an epoch is
// dropped. A pure function of the number of consumed samples, so any position can be resumed, with
// other sizes too: then the epochs keep their cut, and a micro batch may reach into the next one.
// Throws DataError when there are fewer samples than one global micro batch. The order of the
// present epoch is cached: one Sampler is for one thread at a time.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  // Indices of this rank's next micro batch after `consumed` samples (counted over all ranks).
  std::vector<int64_t> micro_batch(int64_t consumed) const;
  // consumed + micro_batch_size * dp_size.
  int64_t advance(int64_t consumed) const;
  int64_t epoch(int64_t consumed) const;
  EpochCut cut() const { return cut_; }

 private:
  const std::vector<int64_t>& order_of(int64_t epoch) const;

  SamplerOptions options_;
  EpochCut cut_;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> order_;
};

// torch.randperm(n) of a CPU generator seeded with `seed` (mt19937, Fisher-Yates; n < 2^32 / 20).
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

enum class OnBadSample { kStop, kSkip };

struct BadSample {
  int64_t index = 0;
  std::string cause;
};

// Nothing for a bad sample that is left out (kSkip), which is added to `skipped`. Throws as get()
// does otherwise.
std::optional<Sample> get_or_skip(const Dataset& dataset,
                                  int64_t index,
                                  OnBadSample on_bad,
                                  std::vector<BadSample>& skipped);

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
