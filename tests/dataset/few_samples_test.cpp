// Data sets with hardly more samples than ranks, or fewer: every rank makes the same number of
// steps with full micro batches, or every rank stops with the same error before its first one.
#include <nlohmann/json.hpp>

#include "shardloom/data/datasets/internvl3_5.h"
#include "shardloom/data/loader.h"
#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

struct RankSteps {
  std::vector<std::vector<int64_t>> batches;
  int64_t consumed = 0;
};

// Throws what the rank would end with.
RankSteps steps_of_rank(const std::string& file, SamplerOptions options, int64_t steps) {
  const auto dataset =
      std::make_shared<InternVL35Dataset>(param_for(test_data("DATA-07/" + file)), facts_448());
  options.num_samples = dataset->size();
  Loader loader(dataset, options, {.num_workers = 2});
  RankSteps result;
  for (int64_t i = 0; i < steps; ++i) result.batches.push_back(loader.next().sample_indices);
  result.consumed = loader.consumed_samples();
  return result;
}

// Samples in global order of a step: entry j of rank r is number j * dp + r.
std::vector<int64_t> joined(const std::vector<RankSteps>& ranks, size_t step) {
  std::vector<int64_t> order;
  for (size_t j = 0; j < ranks[0].batches[step].size(); ++j) {
    for (const RankSteps& rank : ranks) order.push_back(rank.batches[step].at(j));
  }
  return order;
}

TEST(FewSamples, CasesEndInFullStepsOrOneErrorOnAllRanks) {
  const auto cases =
      nlohmann::json::parse(std::ifstream(test_data("DATA-07/expected.json"))).at("cases");
  int errors = 0, runs = 0;
  for (const auto& row : cases) {
    const auto file = row.at("file").get<std::string>();
    const int64_t samples = file[1] - '0';
    const int dp = row.value("dp", 2);
    const int64_t micro = row.value("micro_batch", 1),
                  global = row.value("global_batch", micro * dp);
    if (global % (micro * dp) != 0) continue;  // refused with the sizes (config)
    const int64_t steps = row.value("train_iters", 2);
    std::vector<RankSteps> ranks;
    std::set<std::string> texts;
    for (int rank = 0; rank < dp; ++rank) {
      const SamplerOptions options{.micro_batch_size = micro, .dp_rank = rank, .dp_size = dp};
      if (samples < micro * dp) {
        texts.insert(data_error_of([&] { steps_of_rank(file, options, steps); }));
      } else {
        ranks.push_back(steps_of_rank(file, options, steps));
      }
    }
    EXPECT_EQ(texts.size(), samples < micro * dp ? 1U : 0U) << file;
    errors += static_cast<int>(texts.size());
    runs += ranks.empty() ? 0 : 1;
    for (const RankSteps& rank : ranks) EXPECT_EQ(rank.consumed, global * steps) << file;
    // The epoch's rule: its tail is dropped, so each step starts where a whole step fits.
    for (size_t step = 0; !ranks.empty() && step < static_cast<size_t>(steps); ++step) {
      const int64_t active = samples / global * global;
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < global; ++i)
        expected.push_back((static_cast<int64_t>(step) * global + i) % active);
      EXPECT_EQ(joined(ranks, step), expected) << file << " step " << step;
    }
  }
  EXPECT_EQ(errors, 2);  // n0, and n1 on 2 ranks
  EXPECT_EQ(runs, 2);    // n3 and n5
}

// Files n0, n1, n3, n5 on 2 and 4 ranks, shuffled or not, for several epochs.
TEST(FewSamples, NoRankEverGetsAnEmptyOrShortMicroBatch) {
  for (const int64_t samples : {0, 1, 3, 5}) {
    for (const int dp : {2, 4}) {
      for (const bool shuffle : {false, true}) {
        for (int rank = 0; rank < dp; ++rank) {
          const SamplerOptions options{.dp_rank = rank, .dp_size = dp, .shuffle = shuffle};
          const auto run = [&] {
            return steps_of_rank(fmt::format("n{}.jsonl", samples), options, 7);
          };
          if (samples < dp) {
            EXPECT_THAT(data_error_of(run),
                        testing::HasSubstr(samples == 0 ? "no samples"
                                                        : fmt::format("{} samples", samples)));
            continue;
          }
          const RankSteps steps = run();
          EXPECT_EQ(steps.consumed, 7 * dp);
          for (const auto& batch : steps.batches) EXPECT_EQ(batch.size(), 1U);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardloom::data
