#include "shardloom/data/check.h"

#include "shardloom/data/datasets/internvl3_5.h"
#include "shardloom/data/show.h"
#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckThreads : public testing::TestWithParam<int> {};

TEST_P(CheckThreads, ListsEveryBadSampleWhateverTheThreads) {
  const auto path = test_data("DATA-03/tags.jsonl");
  const InternVL35Dataset dataset(param_for(path), facts_448());
  int64_t last = 0;
  const CheckReport report =
      check_dataset(dataset, GetParam(), [&](int64_t done) { EXPECT_EQ(done, ++last); });
  EXPECT_EQ(last, 17);
  EXPECT_EQ(report.num_samples, 17);
  EXPECT_EQ(report.num_good(), 10);
  std::vector<int64_t> bad;
  for (const auto& [index, sample] : report.bad) {
    bad.push_back(index + 1);
    EXPECT_EQ(sample.place, fmt::format("{}:{}", path.string(), index + 1));
    EXPECT_THAT(sample.cause, testing::StartsWith(sample.place + ": "));
  }
  EXPECT_THAT(bad, ElementsAre(3, 4, 7, 12, 15, 16, 17));
  EXPECT_EQ(report.tiles, (std::map<int64_t, int64_t>{{0, 3}, {1, 6}, {2, 1}}));
}

INSTANTIATE_TEST_SUITE_P(Threads, CheckThreads, testing::Values(1, 4));

TEST(Check, CountsSamplesWithoutTargetsAndCutOnes) {
  const auto path = test_data("DATA-05/masked.jsonl");
  const InternVL35Dataset dataset(param_for(path), facts_448());
  const CheckReport report = check_dataset(dataset, 2);
  EXPECT_EQ(report.without_targets, (std::map<int64_t, std::string>{{0, path.string() + ":1"}}));
  EXPECT_EQ(report.truncated,
            (std::map<int64_t, std::string>{{0, path.string() + ":1"}, {3, path.string() + ":4"}}));
  EXPECT_EQ(report.bad.count(2), 1);
  int64_t tokens = 0;
  for (const auto& [length, count] : report.lengths) tokens += length * count;
  EXPECT_EQ(report.num_tokens, tokens);
  EXPECT_DOUBLE_EQ(report.target_share(),
                   static_cast<double>(report.num_targets) / static_cast<double>(tokens));
  const OrderedJson json = to_json(report);
  EXPECT_EQ(json["samples"], 4);
  EXPECT_EQ(json["good"], 3);
  EXPECT_EQ(json["bad"][0]["index"], 2);
  EXPECT_EQ(json["without_targets"][0]["place"], path.string() + ":1");
  EXPECT_EQ(json["tile_histogram"],
            OrderedJson::parse(R"([{"tiles": 0, "count": 1}, {"tiles": 1, "count": 2}])"));
}

TEST(Check, TextNamesCausesCountsAndBars) {
  const auto path = test_data("DATA-05/masked.jsonl");
  const CheckReport report = check_dataset(InternVL35Dataset(param_for(path), facts_448()), 2);
  const std::string text = to_text(report);
  EXPECT_THAT(text, testing::StartsWith(path.string() + ":3: picture "));
  EXPECT_THAT(text, HasSubstr("\n4 samples, 3 good, 1 bad\n"));
  EXPECT_THAT(text,
              HasSubstr("1 samples train nothing (no label left):\n  " + path.string() + ":1\n"));
  EXPECT_THAT(text, HasSubstr("2 samples are cut to cutoff_len:\n  " + path.string() + ":1, " +
                              path.string() + ":4\n"));
  EXPECT_THAT(text, HasSubstr("longest 1024\n"));
  EXPECT_THAT(text, HasSubstr("0 |####################                    | 1\n"));
  EXPECT_THAT(text, HasSubstr("1 |########################################| 2\n"));
  EXPECT_THAT(to_text(CheckReport{}), HasSubstr("0 samples, 0 good, 0 bad"));
}

TEST(Check, AnyOtherErrorAndAStopEndIt) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-07/n5.jsonl")), facts_448());
  EXPECT_THROW(check_dataset(dataset, 2, [](int64_t) { throw InterruptedError("stop"); }),
               InterruptedError);
}

TEST(Check, BinsCoverAllLengthsOnce) {
  EXPECT_TRUE(length_bins({}).empty());
  const auto one = length_bins({{7, 3}});
  ASSERT_EQ(one.size(), 1);
  EXPECT_EQ(one[0].count, 3);
  const auto bins = length_bins({{10, 1}, {11, 2}, {33, 4}, {34, 8}, {1000, 16}});
  EXPECT_LE(bins.size(), 12);
  EXPECT_EQ(bins.front().from, 10);
  EXPECT_GE(bins.back().to, 1000);
  int64_t total = 0;
  for (size_t i = 0; i < bins.size(); ++i) {
    total += bins[i].count;
    if (i > 0) {
      EXPECT_EQ(bins[i].from, bins[i - 1].to + 1);
    }
  }
  EXPECT_EQ(total, 31);
}

TEST(Show, GivesArraysTextAndPictures) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-03/tags.jsonl")), facts_448());
  const SampleView view = dataset.view(13);
  const OrderedJson json = to_json(view);
  EXPECT_EQ(json["index"], 13);
  EXPECT_EQ(json["place"], dataset.place(13));
  EXPECT_EQ(json["input_ids"].get<std::vector<int64_t>>(), view.sample.arrays.at("input_ids").ints);
  EXPECT_EQ(json["labels"].get<std::vector<int64_t>>(), view.sample.arrays.at("labels").ints);
  EXPECT_EQ(json["tokens"], json["input_ids"].size());
  EXPECT_EQ(json["tiles"], 2);
  EXPECT_EQ(json["images"][0]["width"], 8);
  EXPECT_EQ(json["images"][0]["tile_sha256"][0].get<std::string>().size(), 64);
  const std::string text = to_text(view);
  EXPECT_THAT(text, HasSubstr("<img><IMG_CONTEXT> x256 </img>"));
  EXPECT_THAT(text, HasSubstr("762 x256"));
  EXPECT_THAT(text, HasSubstr("a.png: 8 x 8 pixels, 1 tile\n"));
}

}  // namespace
}  // namespace shardloom::data
