#include "shardloom/trainer/same_settings.h"

#include <algorithm>
#include <array>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/collective_text.h"
#include "shardloom/config/settings.h"

namespace shardloom::trainer {
namespace {

constexpr size_t kMostShown = 5;

// Values that may differ; that one is given at all may not.
bool belongs_to_host(const std::string& path) {
  static const std::array<std::string_view, 11> names = {
      "model_name_or_path", "dataset",     "dataset_dir", "cache_dir",  "load",           "save",
      "metrics_dir",        "num_workers", "plugin",      "pin_memory", "prefetch_factor"};
  const std::string_view name = std::string_view(path).substr(path.rfind('.') + 1);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A line "training.lr is 0.001" for each setting.
std::string text_of(const config::TrainConfig& config) {
  std::vector<std::string> lines;
  for (const auto& [path, value] : config::settings_of(config)) {
    const bool shown = value == "null" || value == "[]" || !belongs_to_host(path);
    lines.push_back(fmt::format("{} is {}", path, shown ? value : "given"));
  }
  return join(lines, "\n");
}

}  // namespace

void require_same_settings(distributed::Group& group, const config::TrainConfig& config) {
  if (group.size() == 1) return;
  const auto texts = checkpoint::all_gather_text(group, text_of(config), "settings");
  const std::vector<std::string> first = split(texts[0], '\n');
  std::vector<std::string> differences;
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const std::vector<std::string> other = split(texts[rank], '\n');
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      if (first[i] != other[i])
        differences.push_back(fmt::format("{} on rank {}, {} on rank {}", first[i],
                                          group.ranks()[0], other[i], group.ranks()[rank]));
    }
    if (first.size() != other.size())
      differences.push_back(
          fmt::format("rank {} is another version of shardloom", group.ranks()[rank]));
  }
  if (differences.empty()) return;
  const size_t more = differences.size() - std::min(differences.size(), kMostShown);
  differences.resize(differences.size() - more);
  throw ConfigError(
      "the ranks have different settings: {}{}; start all with the same file and "
      "overrides",
      join(differences, "; "), more > 0 ? fmt::format(" and {} more", more) : "");
}

void require_same_data(distributed::Group& group, const std::string& fingerprint) {
  if (group.size() == 1) return;
  const auto all = checkpoint::all_gather_text(group, fingerprint, "fingerprint of the data");
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != all[0]; });
  if (other == all.end()) return;
  throw DataError(
      "the data of rank {} are not those of rank {}; give all hosts the same files, in the same "
      "order",
      group.ranks()[static_cast<size_t>(other - all.begin())], group.ranks()[0]);
}

}  // namespace shardloom::trainer
