#include "shardloom/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "shardloom/base/log.h"

namespace shardloom::data {
namespace {

// One micro batch as a worker leaves it.
struct Prepared {
  Batch batch;
  std::vector<BadSample> skipped;
  std::exception_ptr error;
};

// Nobody takes what a worker that was asked to stop has not finished.
Prepared prepare(const Dataset& dataset,
                 const std::vector<int64_t>& indices,
                 OnBadSample on_bad,
                 const std::stop_token& stop) {
  Prepared result;
  try {
    std::vector<Sample> samples;
    for (const int64_t index : indices) {
      if (stop.stop_requested()) return result;
      if (auto sample = get_or_skip(dataset, index, on_bad, result.skipped))
        samples.push_back(std::move(*sample));
    }
    result.batch = dataset.collate(samples);
  } catch (...) {
    result.error = std::current_exception();
  }
  return result;
}

}  // namespace

std::optional<Sample> get_or_skip(const Dataset& dataset,
                                  int64_t index,
                                  OnBadSample on_bad,
                                  std::vector<BadSample>& skipped) {
  try {
    return dataset.get(index);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData || on_bad == OnBadSample::kStop) throw;
    skipped.push_back({index, error.what()});
    return std::nullopt;
  }
}

// Micro batch n sits in slot n % slots.size() between the worker that prepares it and the next()
// that takes it. `mutex` guards the slots and what is declared below it; preparing itself happens
// without the lock.
struct Loader::Impl {
  struct Slot {
    bool ready = false;
    int64_t consumed_after = 0;
    Prepared prepared;
  };

  Impl(std::shared_ptr<const Dataset> data,
       const SamplerOptions& sampler_options,
       const LoaderOptions& loader_options,
       int64_t consumed_samples)
      : dataset(std::move(data)),
        sampler(sampler_options),
        sampler_ahead(sampler_options),
        options(loader_options),
        consumed(consumed_samples),
        to_prepare(consumed_samples) {
    if (options.num_workers <= 0) return;
    slots.resize(static_cast<size_t>(options.num_workers) *
                 static_cast<size_t>(std::max(options.prefetch_factor, 1)));
    for (int i = 0; i < options.num_workers; ++i) {
      workers.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (true) {
      const bool go = space.wait(lock, stop, [&] {
        return prepared_count < taken_count + static_cast<int64_t>(slots.size());
      });
      if (!go || stop.stop_requested()) return;
      Slot& slot = slots[static_cast<size_t>(prepared_count++) % slots.size()];
      const std::vector<int64_t> indices = sampler_ahead.micro_batch(to_prepare);
      to_prepare = sampler_ahead.advance(to_prepare);
      slot.consumed_after = to_prepare;
      lock.unlock();
      Prepared prepared = prepare(*dataset, indices, options.on_bad_sample, stop);
      lock.lock();
      slot.prepared = std::move(prepared);
      slot.ready = true;
      filled.notify_all();
    }
  }

  Prepared take() {
    if (slots.empty()) {
      Prepared prepared =
          prepare(*dataset, sampler.micro_batch(consumed), options.on_bad_sample, {});
      if (!prepared.error) consumed = sampler.advance(consumed);
      return prepared;
    }
    std::unique_lock lock(mutex);
    Slot& slot = slots[static_cast<size_t>(taken_count) % slots.size()];
    filled.wait(lock, [&] { return slot.ready; });
    // A bad micro batch stays where it is: asked again, it fails again.
    if (slot.prepared.error) return {.batch = {}, .skipped = {}, .error = slot.prepared.error};
    Prepared prepared = std::move(slot.prepared);
    consumed = slot.consumed_after;
    slot = {};
    ++taken_count;
    space.notify_one();
    return prepared;
  }

  std::shared_ptr<const Dataset> dataset;
  Sampler sampler;        // of the thread that calls next()
  Sampler sampler_ahead;  // of the workers, under the lock
  LoaderOptions options;
  int64_t consumed;
  int64_t skipped = 0;
  std::set<int64_t> reported;

  std::mutex mutex;
  std::condition_variable_any space;   // a slot became free
  std::condition_variable_any filled;  // a slot became ready
  int64_t to_prepare;                  // consumed samples before the next micro batch to prepare
  int64_t prepared_count = 0;          // micro batches handed to workers
  int64_t taken_count = 0;             // micro batches handed out by next()
  std::vector<Slot> slots;
  std::vector<std::jthread> workers;  // last: stopped and joined before anything else goes away
};

Loader::Loader(std::shared_ptr<const Dataset> dataset,
               const SamplerOptions& sampler,
               const LoaderOptions& options,
               int64_t consumed_samples)
    : impl_(std::make_unique<Impl>(std::move(dataset), sampler, options, consumed_samples)) {}

Loader::~Loader() = default;

Batch Loader::next() {
  Prepared prepared = impl_->take();
  if (prepared.error) std::rethrow_exception(prepared.error);
  for (const auto& bad : prepared.skipped) {
    ++impl_->skipped;
    if (impl_->reported.insert(bad.index).second) log::warn("sample skipped: {}", bad.cause);
  }
  return std::move(prepared.batch);
}

int64_t Loader::consumed_samples() const { return impl_->consumed; }

const Sampler& Loader::sampler() const { return impl_->sampler; }

int64_t Loader::skipped_samples() const { return impl_->skipped; }

}  // namespace shardloom::data
