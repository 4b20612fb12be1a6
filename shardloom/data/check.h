// Reads a whole data set and says what is wrong with it and what it looks like (`shardloom data
// check`).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardloom/base/json.h"
#include "shardloom/data/dataset.h"

namespace shardloom::data {

struct BadSampleReport {
  std::string place;  // "train.jsonl:12"
  std::string cause;  // the whole message, which begins with the place
};

struct CheckReport {
  int64_t num_samples = 0;
  std::map<int64_t, BadSampleReport> bad;          // by index
  std::map<int64_t, std::string> without_targets;  // index -> place of samples that train nothing
  std::map<int64_t, std::string> truncated;        // index -> place of samples cut to cutoff_len
  int64_t num_tokens = 0;                          // of the good samples
  int64_t num_targets = 0;                         // tokens with a label
  std::map<int64_t, int64_t> lengths;              // tokens of a sample -> number of samples
  std::map<int64_t, int64_t> tiles;  // tiles of a sample (0 = text only) -> number of samples

  int64_t num_good() const { return num_samples - static_cast<int64_t>(bad.size()); }
  double target_share() const;  // num_targets / num_tokens, 0 without tokens
};

// A histogram bar: number of samples whose length is in [from, to].
struct LengthBin {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
};
// At most 12 bins of equal width from the shortest to the longest length.
std::vector<LengthBin> length_bins(const std::map<int64_t, int64_t>& lengths);

// Prepares every sample on `num_threads` threads; DataErrors become entries of the report, anything
// else is rethrown. `on_progress` gets the number of samples done (called by one thread at a time;
// it may throw to stop the check).
CheckReport check_dataset(const Dataset& dataset,
                          int num_threads,
                          const std::function<void(int64_t)>& on_progress = {});

// {"samples", "good", "bad": [{"index", "place", "cause"}], "without_targets": [{"index",
// "place"}], "truncated": [...], "tokens", "targets", "target_share", "length_histogram": [{"from",
// "to", "count"}], "tile_histogram": [{"tiles", "count"}]}
OrderedJson to_json(const CheckReport& report);

// The same for people, with bars.
std::string to_text(const CheckReport& report);

}  // namespace shardloom::data
