#include "shardloom/data/check.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "shardloom/tokenizer/chat_template.h"

namespace shardloom::data {
namespace {

// What the report needs of one good sample.
struct Measures {
  int64_t tokens = 0;
  int64_t targets = 0;
  int64_t tiles = 0;
  bool is_truncated = false;
};

Measures measure(const Sample& sample) {
  const auto& labels = sample.arrays.at("labels").ints;
  Measures measures;
  measures.tokens = static_cast<int64_t>(labels.size());
  measures.targets =
      measures.tokens - std::count(labels.begin(), labels.end(), tokenizer::kIgnoredLabel);
  if (const auto flags = sample.arrays.find("image_flags"); flags != sample.arrays.end()) {
    const auto& values = flags->second.ints;
    measures.tiles = std::accumulate(values.begin(), values.end(), int64_t{0});
  }
  measures.is_truncated = sample.is_truncated;
  return measures;
}

// Collects the samples of all threads.
class Collector {
 public:
  Collector(const Dataset& dataset, const std::function<void(int64_t)>& on_progress)
      : dataset_(dataset), on_progress_(on_progress) {
    report_.num_samples = dataset.size();
  }

  void check(int64_t index) {
    try {
      const Measures measures = measure(dataset_.get(index));
      const std::lock_guard lock(mutex_);
      add(index, measures);
      progress();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      const std::lock_guard lock(mutex_);
      report_.bad[index] = {dataset_.place(index), error.what()};
      progress();
    }
  }

  CheckReport take() { return std::move(report_); }

 private:
  void add(int64_t index, const Measures& measures) {
    report_.num_tokens += measures.tokens;
    report_.num_targets += measures.targets;
    ++report_.lengths[measures.tokens];
    ++report_.tiles[measures.tiles];
    if (measures.targets == 0) report_.without_targets[index] = dataset_.place(index);
    if (measures.is_truncated) report_.truncated[index] = dataset_.place(index);
  }

  void progress() {
    ++done_;
    if (on_progress_) on_progress_(done_);
  }

  const Dataset& dataset_;
  const std::function<void(int64_t)>& on_progress_;
  std::mutex mutex_;
  CheckReport report_;
  int64_t done_ = 0;
};

OrderedJson places(const std::map<int64_t, std::string>& samples) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [index, place] : samples) list.push_back({{"index", index}, {"place", place}});
  return list;
}

}  // namespace

double CheckReport::target_share() const {
  return num_tokens == 0 ? 0 : static_cast<double>(num_targets) / static_cast<double>(num_tokens);
}

std::vector<LengthBin> length_bins(const std::map<int64_t, int64_t>& lengths) {
  constexpr int64_t kMaxBins = 12;
  if (lengths.empty()) return {};
  const int64_t shortest = lengths.begin()->first;
  const int64_t span = lengths.rbegin()->first - shortest + 1;
  const int64_t width = (span + kMaxBins - 1) / kMaxBins;
  std::vector<LengthBin> bins;
  for (int64_t from = shortest; from < shortest + span; from += width) {
    bins.push_back({from, from + width - 1, 0});
  }
  for (const auto& [length, count] : lengths) {
    bins[static_cast<size_t>((length - shortest) / width)].count += count;
  }
  return bins;
}

CheckReport check_dataset(const Dataset& dataset,
                          int num_threads,
                          const std::function<void(int64_t)>& on_progress) {
  Collector collector(dataset, on_progress);
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  auto work = [&] {
    try {
      for (int64_t index = next++; index < dataset.size(); index = next++) collector.check(index);
    } catch (...) {
      next = dataset.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < std::max(num_threads, 1); ++i) threads.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
  return collector.take();
}

OrderedJson to_json(const CheckReport& report) {
  OrderedJson bad = OrderedJson::array();
  for (const auto& [index, sample] : report.bad) {
    bad.push_back({{"index", index}, {"place", sample.place}, {"cause", sample.cause}});
  }
  OrderedJson bins = OrderedJson::array();
  for (const auto& bin : length_bins(report.lengths)) {
    bins.push_back({{"from", bin.from}, {"to", bin.to}, {"count", bin.count}});
  }
  OrderedJson tiles = OrderedJson::array();
  for (const auto& [count, samples] : report.tiles) {
    tiles.push_back({{"tiles", count}, {"count", samples}});
  }
  return {{"samples", report.num_samples},
          {"good", report.num_good()},
          {"bad", bad},
          {"without_targets", places(report.without_targets)},
          {"truncated", places(report.truncated)},
          {"tokens", report.num_tokens},
          {"targets", report.num_targets},
          {"target_share", report.target_share()},
          {"length_histogram", bins},
          {"tile_histogram", tiles}};
}

}  // namespace shardloom::data
