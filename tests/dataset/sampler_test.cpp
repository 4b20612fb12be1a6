#include <map>
#include <set>

#include "shardloom/base/json.h"
#include "shardloom/data/loader.h"
#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TorchRandperm, EqualsTorch) {
  EXPECT_THAT(torch_randperm(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  auto large = torch_randperm(20000, 0);
  large.resize(10);
  EXPECT_THAT(large,
              ElementsAre(16044, 15558, 2137, 17756, 6839, 9824, 17715, 12573, 11625, 11413));
  EXPECT_TRUE(torch_randperm(0, 3).empty());
  EXPECT_THAT(torch_randperm(1, 3), ElementsAre(0));
}

TEST(TorchRandperm, UsesTheLower32BitsOfTheSeed) {
  EXPECT_EQ(torch_randperm(50, (uint64_t{7} << 32) + 5), torch_randperm(50, 5));
  EXPECT_NE(torch_randperm(50, 6), torch_randperm(50, 5));
}

// The indices of all ranks for `steps` global micro batches: [step][rank] -> indices.
std::vector<std::vector<std::vector<int64_t>>> walk(SamplerOptions options, int steps) {
  std::vector<std::vector<std::vector<int64_t>>> result(static_cast<size_t>(steps));
  for (options.dp_rank = 0; options.dp_rank < options.dp_size; ++options.dp_rank) {
    const Sampler sampler(options);
    int64_t consumed = 0;
    for (auto& step : result) {
      step.push_back(sampler.micro_batch(consumed));
      consumed = sampler.advance(consumed);
    }
  }
  return result;
}

TEST(Sampler, FileOrderIsInterleavedOverTheRanks) {
  const auto steps = walk({.num_samples = 9, .micro_batch_size = 2, .dp_size = 2}, 3);
  EXPECT_THAT(steps[0], ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(steps[1], ElementsAre(ElementsAre(4, 6), ElementsAre(5, 7)));
  EXPECT_THAT(steps[2], ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Sampler, EpochSeedGivesTheReferenceOrder) {
  const auto steps = walk({.num_samples = 10,
                           .micro_batch_size = 1,
                           .dp_size = 2,
                           .shuffle = true,
                           .seed_by_epoch_only = true},
                          6);
  // randperm(10) of seed 0 is 4 1 7 5 3 9 0 8 6 2.
  EXPECT_THAT(steps[0], ElementsAre(ElementsAre(4), ElementsAre(1)));
  EXPECT_THAT(steps[4], ElementsAre(ElementsAre(6), ElementsAre(2)));
  const auto second = torch_randperm(10, 1);
  EXPECT_THAT(steps[5], ElementsAre(ElementsAre(second[0]), ElementsAre(second[1])));
}

TEST(Sampler, ShufflesOnlyWholeMicroBatchesAsTheReference) {
  const auto order = torch_randperm(9, 0);  // 11 samples, micro batch 3
  const auto steps = walk({.num_samples = 11,
                           .micro_batch_size = 3,
                           .dp_size = 2,
                           .shuffle = true,
                           .seed_by_epoch_only = true},
                          1);
  EXPECT_THAT(steps[0][0], ElementsAre(order[0], order[2], order[4]));
  EXPECT_THAT(steps[0][1], ElementsAre(order[1], order[3], order[5]));
}

TEST(Sampler, TrainingSeedShiftsTheOrder) {
  const Sampler sampler({.num_samples = 6, .micro_batch_size = 6, .shuffle = true, .seed = 42});
  EXPECT_EQ(sampler.micro_batch(0), torch_randperm(6, 42));
  EXPECT_EQ(sampler.micro_batch(6), torch_randperm(6, 43));
  EXPECT_EQ(sampler.micro_batch(0), torch_randperm(6, 42));
}

TEST(Sampler, GlobalOrderDoesNotDependOnHowRanksCutIt) {
  const SamplerOptions one{.num_samples = 20, .micro_batch_size = 4, .shuffle = true, .seed = 3};
  SamplerOptions four = one;
  four.micro_batch_size = 1;
  four.dp_size = 4;
  const auto single = walk(one, 7);
  const auto split = walk(four, 7);
  for (size_t step = 0; step < single.size(); ++step) {
    std::vector<int64_t> joined;
    for (const auto& rank : split[step]) joined.insert(joined.end(), rank.begin(), rank.end());
    EXPECT_EQ(joined, single[step][0]) << "step " << step;
  }
}

// 5 samples, global batch 2: stop at every step and resume.
class SamplerResume : public testing::TestWithParam<bool> {};

TEST_P(SamplerResume, AnyConsumedCountContinuesTheSameOrder) {
  SamplerOptions options{
      .num_samples = 5, .micro_batch_size = 1, .dp_size = 2, .shuffle = GetParam()};
  const auto steps = walk(options, 13);
  for (int64_t stop = 1; stop <= 12; ++stop) {
    for (options.dp_rank = 0; options.dp_rank < 2; ++options.dp_rank) {
      const Sampler resumed(options);
      int64_t consumed = 2 * stop;
      for (auto step = static_cast<size_t>(stop); step < steps.size(); ++step) {
        EXPECT_EQ(resumed.micro_batch(consumed), steps[step][static_cast<size_t>(options.dp_rank)]);
        consumed = resumed.advance(consumed);
      }
      EXPECT_EQ(consumed, 26);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shuffle, SamplerResume, testing::Bool());

TEST(Sampler, EpochChangesAtTheEndOfTheActiveSamples) {
  const Sampler sampler({.num_samples = 5, .micro_batch_size = 1, .dp_size = 2});
  EXPECT_EQ(sampler.cut(), (EpochCut{.shuffled = 5, .used = 4}));
  EXPECT_EQ(sampler.epoch(2), 0);
  EXPECT_EQ(sampler.epoch(4), 1);
}

// The global order goes on as it was, whatever ranks and micro batches take it up: 11 samples, of
// which 2 ranks with micro batches of 2 use 8 in each epoch.
TEST(Sampler, OtherSizesKeepTheOrderOfTheRunTheyContinue) {
  const SamplerOptions saved{
      .num_samples = 11, .micro_batch_size = 2, .dp_size = 2, .shuffle = true, .seed = 5};
  std::vector<int64_t> order;
  for (const auto& step : walk(saved, 12)) {
    for (size_t i = 0; i < 2; ++i) order.insert(order.end(), {step[0][i], step[1][i]});
  }
  for (const auto& [micro, ranks] : {std::pair{1, 1}, {3, 1}, {1, 4}, {5, 2}, {3, 4}}) {
    SamplerOptions other = saved;
    other.micro_batch_size = micro;
    other.dp_size = ranks;
    other.cut = Sampler(saved).cut();
    std::vector<int64_t> taken;
    for (int64_t consumed = 12; consumed + micro * ranks <= 48;) {
      std::vector<std::vector<int64_t>> of_ranks;
      for (other.dp_rank = 0; other.dp_rank < ranks; ++other.dp_rank)
        of_ranks.push_back(Sampler(other).micro_batch(consumed));
      for (size_t i = 0; i < static_cast<size_t>(micro); ++i) {
        for (const auto& batch : of_ranks) taken.push_back(batch[i]);
      }
      other.dp_rank = 0;
      consumed = Sampler(other).advance(consumed);
    }
    EXPECT_EQ(taken, std::vector<int64_t>(order.begin() + 12,
                                          order.begin() + 12 + static_cast<long>(taken.size())))
        << micro << " x " << ranks;
  }
}

// The files n0, n1, n3, n5 against 2 and 4 ranks.
TEST(SamplerFewSamples, TooFewIsAnErrorOnEveryRank) {
  for (const int64_t n : {0, 1, 3}) {
    for (const int dp : {2, 4}) {
      if (n >= dp) continue;
      for (int rank = 0; rank < dp; ++rank) {
        const SamplerOptions options{
            .num_samples = n, .micro_batch_size = 1, .dp_rank = rank, .dp_size = dp};
        const std::string text = data_error_of([&] { Sampler sampler(options); });
        EXPECT_THAT(text,
                    HasSubstr(n == 0 ? "no samples" : "fewer than one micro batch of all ranks"));
      }
    }
  }
}

TEST(SamplerFewSamples, TailIsDroppedAndEveryRankMakesTheSameSteps) {
  const auto three = walk({.num_samples = 3, .micro_batch_size = 1, .dp_size = 2}, 3);
  for (const auto& step : three) EXPECT_THAT(step, ElementsAre(ElementsAre(0), ElementsAre(1)));
  const auto five = walk({.num_samples = 5, .micro_batch_size = 2, .dp_size = 2}, 2);
  for (const auto& step : five)
    EXPECT_THAT(step, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  const auto four = walk({.num_samples = 5, .micro_batch_size = 1, .dp_size = 4}, 2);
  for (const auto& step : four) {
    EXPECT_THAT(step, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  }
}

}  // namespace
}  // namespace shardloom::data
