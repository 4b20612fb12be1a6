#include <algorithm>

#include "shardloom/base/strings.h"
#include "shardloom/data/check.h"

namespace shardloom::data {
namespace {

// "####      " of `width` characters, at least one # for a count above zero.
std::string bar(int64_t count, int64_t largest, int64_t width = 40) {
  const int64_t filled = count == 0 ? 0 : std::max<int64_t>(1, count * width / largest);
  return std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(width - filled), ' ');
}

// "  train.jsonl:3, train.jsonl:9, and 5 more".
std::string first_places(const std::map<int64_t, std::string>& samples) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (const auto& [index, place] : samples) {
    if (shown.size() < kShown) shown.push_back(place);
  }
  if (samples.size() > kShown) shown.push_back(fmt::format("and {} more", samples.size() - kShown));
  return "  " + join(shown, ", ") + "\n";
}

std::string length_section(const CheckReport& report) {
  const double mean =
      static_cast<double>(report.num_tokens) / static_cast<double>(report.num_good());
  std::string text =
      fmt::format("\ntokens a sample: shortest {}, mean {:.1f}, longest {}\n",
                  report.lengths.begin()->first, mean, report.lengths.rbegin()->first);
  const std::vector<LengthBin> bins = length_bins(report.lengths);
  int64_t largest = 0;
  for (const auto& bin : bins) largest = std::max(largest, bin.count);
  for (const auto& bin : bins) {
    text += fmt::format("  {:>7}..{:<7} |{}| {}\n", bin.from, bin.to, bar(bin.count, largest),
                        bin.count);
  }
  return text;
}

std::string tile_section(const CheckReport& report) {
  std::string text = "\ntiles a sample (0 = text only)\n";
  int64_t largest = 0;
  for (const auto& [tiles, count] : report.tiles) largest = std::max(largest, count);
  for (const auto& [tiles, count] : report.tiles) {
    text += fmt::format("  {:>16} |{}| {}\n", tiles, bar(count, largest), count);
  }
  return text;
}

}  // namespace

std::string to_text(const CheckReport& report) {
  std::string text;
  for (const auto& [index, sample] : report.bad) text += sample.cause + "\n";
  text += fmt::format("{}{} samples, {} good, {} bad\n", text.empty() ? "" : "\n",
                      report.num_samples, report.num_good(), report.bad.size());
  text += fmt::format("{} tokens, {:.2f} % of them with a label\n", report.num_tokens,
                      100 * report.target_share());
  if (!report.without_targets.empty()) {
    text += fmt::format("{} samples train nothing (no label left):\n{}",
                        report.without_targets.size(), first_places(report.without_targets));
  }
  if (!report.truncated.empty()) {
    text += fmt::format("{} samples are cut to cutoff_len:\n{}", report.truncated.size(),
                        first_places(report.truncated));
  }
  if (report.num_good() > 0) text += length_section(report) + tile_section(report);
  return text;
}

}  // namespace shardloom::data
