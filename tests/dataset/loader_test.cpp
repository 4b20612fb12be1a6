#include "shardloom/data/loader.h"

#include <atomic>
#include <set>
#include <thread>

#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Samples are their index; some are bad, and preparing takes longer for some, so that threads
// overtake each other.
class NumberDataset : public Dataset {
 public:
  explicit NumberDataset(int64_t size, std::set<int64_t> bad = {})
      : size_(size), bad_(std::move(bad)) {}

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override {
    ++calls;
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    if (bad_.contains(index)) throw DataError("{}: bad", place(index));
    return {index, place(index), {{"x", Array::of_ints({1}, {index})}}};
  }
  std::string place(int64_t index) const override { return fmt::format("numbers:{}", index + 1); }
  Batch collate(const std::vector<Sample>& samples) const override {
    Batch batch;
    for (const auto& sample : samples) {
      batch.sample_indices.push_back(sample.index);
      batch.sample_places.push_back(sample.place);
    }
    return batch;
  }
  std::string fingerprint() const override { return "numbers"; }

  mutable std::atomic<int64_t> calls{0};

 private:
  int64_t size_;
  std::set<int64_t> bad_;
};

std::vector<std::vector<int64_t>> take(Loader& loader, int count) {
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < count; ++i) batches.push_back(loader.next().sample_indices);
  return batches;
}

constexpr SamplerOptions kShuffled{
    .num_samples = 23, .micro_batch_size = 2, .dp_rank = 1, .dp_size = 2, .shuffle = true};

class LoaderWorkers : public testing::TestWithParam<int> {};

TEST_P(LoaderWorkers, OrderIsTheSamplersWhateverTheThreads) {
  const auto dataset = std::make_shared<NumberDataset>(23);
  Loader loader(dataset, kShuffled, {.num_workers = GetParam()});
  const Sampler sampler(kShuffled);
  for (int64_t step = 0; step < 40; ++step) {
    EXPECT_EQ(loader.next().sample_indices, sampler.micro_batch(4 * step));
    EXPECT_EQ(loader.consumed_samples(), 4 * (step + 1));
  }
}

TEST_P(LoaderWorkers, ResumesAtAnyConsumedCount) {
  const auto dataset = std::make_shared<NumberDataset>(5);
  const SamplerOptions options{.num_samples = 5, .micro_batch_size = 2, .shuffle = true};
  Loader whole(dataset, options, {.num_workers = GetParam()});
  const auto all = take(whole, 14);
  for (size_t stop = 1; stop <= 12; ++stop) {
    Loader first(dataset, options, {.num_workers = GetParam()});
    take(first, static_cast<int>(stop));
    Loader second(dataset, options, {.num_workers = GetParam()}, first.consumed_samples());
    EXPECT_EQ(take(second, 2), std::vector(all.begin() + static_cast<long>(stop),
                                           all.begin() + static_cast<long>(stop) + 2));
  }
}

TEST_P(LoaderWorkers, BadSampleIsThrownAtItsTurnAndAgain) {
  const auto dataset = std::make_shared<NumberDataset>(8, std::set<int64_t>{5});
  Loader loader(dataset, {.num_samples = 8, .micro_batch_size = 2}, {.num_workers = GetParam()});
  EXPECT_THAT(take(loader, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(data_error_of([&] { loader.next(); }), "numbers:6: bad");
    EXPECT_EQ(loader.consumed_samples(), 4);
  }
}

TEST_P(LoaderWorkers, SkippingLeavesThePlaceEmptyAndReportsOnce) {
  const auto dataset = std::make_shared<NumberDataset>(8, std::set<int64_t>{1, 4, 5});
  testing::internal::CaptureStderr();
  Loader loader(dataset, {.num_samples = 8, .micro_batch_size = 2},
                {.num_workers = GetParam(), .on_bad_sample = OnBadSample::kSkip});
  const auto batches = take(loader, 8);
  const std::string output = testing::internal::GetCapturedStderr();
  const std::vector<std::vector<int64_t>> epoch = {{0}, {2, 3}, {}, {6, 7}};
  EXPECT_EQ(std::vector(batches.begin(), batches.begin() + 4), epoch);
  EXPECT_EQ(std::vector(batches.begin() + 4, batches.end()), epoch);
  EXPECT_EQ(loader.skipped_samples(), 6);
  EXPECT_EQ(loader.consumed_samples(), 16);
  for (const char* place : {"numbers:2: bad", "numbers:5: bad", "numbers:6: bad"}) {
    const size_t first = output.find(place);
    ASSERT_NE(first, std::string::npos) << place;
    EXPECT_EQ(output.find(place, first + 1), std::string::npos) << place << " reported twice";
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderWorkers, testing::Values(0, 1, 2, 5));

// Peers of a context-parallel group have the same data-parallel rank, hence the same samples, also
// behind a bad one.
TEST(Loader, PeersSeeTheSameSamplesAndRanksDifferentOnes) {
  const auto dataset = std::make_shared<NumberDataset>(12, std::set<int64_t>{2});
  std::vector<std::vector<std::vector<int64_t>>> ranks;
  for (const int rank : {0, 0, 1, 1}) {
    Loader loader(dataset,
                  {.num_samples = 12, .micro_batch_size = 1, .dp_rank = rank, .dp_size = 2},
                  {.num_workers = rank + 1, .on_bad_sample = OnBadSample::kSkip});
    ranks.push_back(take(loader, 9));
  }
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_EQ(ranks[2], ranks[3]);
  for (size_t step = 0; step < 9; ++step) EXPECT_NE(ranks[0][step], ranks[2][step]);
}

TEST(Loader, PrefetchIsBounded) {
  const auto dataset = std::make_shared<NumberDataset>(1000);
  Loader loader(dataset, {.num_samples = 1000, .micro_batch_size = 1},
                {.num_workers = 2, .prefetch_factor = 3});
  take(loader, 5);
  // 5 handed out and at most 2 x 3 ahead, however long the workers have had.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(dataset->calls, 5);
  EXPECT_LE(dataset->calls, 5 + 6);
}

// Workers leave what they have prefetched half: a run that fails must not read on for it.
TEST(Loader, StopsWithTheSampleInHand) {
  const auto dataset = std::make_shared<NumberDataset>(100000);
  int64_t calls = 0;
  {
    Loader loader(dataset, {.num_samples = 100000, .micro_batch_size = 100},
                  {.num_workers = 2, .prefetch_factor = 400});
    loader.next();
    calls = dataset->calls;
  }
  // One sample of each worker, and what they did while this thread read the counter.
  EXPECT_LT(dataset->calls, calls + 1000);
}

TEST(Loader, TooManySamplesToShuffleFailBeforeTheFirstBatch) {
  constexpr int64_t kTooMany = int64_t{1} << 28;
  const auto dataset = std::make_shared<NumberDataset>(kTooMany);
  EXPECT_THAT(data_error_of([&] {
                Loader loader(
                    dataset,
                    {.num_samples = kTooMany, .micro_batch_size = 1, .dp_size = 1, .shuffle = true},
                    {});
              }),
              HasSubstr("cannot shuffle 268435456 samples"));
}

TEST(Loader, TooFewSamplesFailBeforeTheFirstBatch) {
  const auto dataset = std::make_shared<NumberDataset>(3);
  EXPECT_THAT(data_error_of([&] {
                Loader loader(dataset, {.num_samples = 3, .micro_batch_size = 1, .dp_size = 4}, {});
              }),
              HasSubstr("3 samples"));
  EXPECT_EQ(dataset->calls, 0);
}

}  // namespace
}  // namespace shardloom::data
