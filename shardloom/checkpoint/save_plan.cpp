#include "shardloom/checkpoint/save_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {
namespace {

struct Holder {
  size_t rank;
  size_t index;  // among its rows
};

}  // namespace

std::string to_text(const std::vector<HeldRows>& held) {
  std::string text;
  for (const HeldRows& rows : held)
    text += fmt::format("{} {} {}\n", rows.first_row, rows.bytes, rows.name);
  return text;
}

std::vector<HeldRows> held_rows_from_text(const std::string& text) {
  std::vector<HeldRows> held;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    const size_t first = line.find(' ');
    const size_t second = line.find(' ', first + 1);
    SHARDLOOM_CHECK(second != std::string::npos, "line \"{}\"", line);
    held.push_back({line.substr(second + 1), std::stoll(line.substr(0, first)),
                    std::stoull(line.substr(first + 1, second - first - 1))});
  }
  return held;
}

std::vector<std::vector<bool>> assign_writers(const std::vector<std::vector<HeldRows>>& of_ranks) {
  std::map<std::pair<std::string, int64_t>, size_t> numbers;
  std::vector<std::vector<Holder>> holders;  // in the order in which the rows are first seen
  std::vector<std::vector<bool>> writes;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    writes.emplace_back(of_ranks[rank].size(), false);
    for (size_t i = 0; i < of_ranks[rank].size(); ++i) {
      const HeldRows& rows = of_ranks[rank][i];
      const auto number = numbers.try_emplace({rows.name, rows.first_row}, holders.size());
      if (number.second) holders.emplace_back();
      holders[number.first->second].push_back({rank, i});
    }
  }
  std::vector<uint64_t> load(of_ranks.size(), 0);
  const auto give = [&](const Holder& holder) {
    writes[holder.rank][holder.index] = true;
    load[holder.rank] += of_ranks[holder.rank][holder.index].bytes;
  };
  for (const auto& candidates : holders) {
    if (candidates.size() == 1) give(candidates[0]);
  }
  for (const auto& candidates : holders) {
    if (candidates.size() == 1) continue;
    give(*std::min_element(
        candidates.begin(), candidates.end(),
        [&](const Holder& a, const Holder& b) { return load[a.rank] < load[b.rank]; }));
  }
  return writes;
}

}  // namespace shardloom::checkpoint
