#include "shardloom/distributed/watchdog_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <set>

#include "shardloom/base/strings.h"

namespace shardloom::distributed {
namespace {

constexpr size_t kShownRanks = 8;

std::string one_field(std::string text) {
  for (char& c : text) {
    if (c == '\t' || c == '\n') c = ' ';
  }
  return text;
}

// "all_gather, unit a"
std::string operation_text(const CollectiveName& name) {
  return name.label.empty() ? name.operation : fmt::format("{}, {}", name.operation, name.label);
}

// Empty when the rank is in the collective of `wait`.
std::string absence_text(const LongWait& wait, int rank, const std::optional<RankRecord>& record) {
  if (!record) return fmt::format("rank {}, of which nothing is known", rank);
  const auto found = record->last.find(wait.key);
  if (found == record->last.end() || found->second.sequence == 0) {
    return fmt::format("rank {}, which has issued nothing there yet", rank);
  }
  const CollectiveName& last = found->second;
  if (last.sequence < wait.name.sequence) {
    return fmt::format("rank {}, which has issued #{} last ({})", rank, last.sequence,
                       operation_text(last));
  }
  if (last.sequence == wait.name.sequence && last.operation != wait.name.operation) {
    return fmt::format("rank {}, which has issued something else as #{} ({})", rank, last.sequence,
                       operation_text(last));
  }
  return "";
}

std::string place_to_look(const std::vector<std::optional<RankRecord>>& records) {
  std::set<std::string> hosts;
  for (const auto& record : records) {
    if (record) hosts.insert(record->host);
  }
  if (hosts.size() == 1) {
    return fmt::format("look at host {}: its load, and whether a process is stopped",
                       *hosts.begin());
  }
  return fmt::format("look at the network between the hosts {}", fmt::join(hosts, ", "));
}

std::string place_text(const LongWait& wait) {
  return fmt::format("waiting {:.3g} s in group {}, {} #{}{}", wait.seconds, wait.group,
                     wait.name.operation, wait.name.sequence,
                     wait.name.label.empty() ? "" : fmt::format(" ({})", wait.name.label));
}

}  // namespace

std::string RankRecord::encode() const {
  std::string text = one_field(host);
  for (const auto& [key, name] : last) {
    text += fmt::format("\n{}\t{}\t{}\t{}", one_field(key), name.sequence, name.operation,
                        one_field(name.label));
  }
  return text;
}

RankRecord RankRecord::decode(std::string_view text) {
  const std::vector<std::string> lines = split(text, '\n');
  RankRecord record{.host = lines.at(0)};
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = split(lines[i], '\t');
    if (fields.size() != 4) continue;
    CollectiveName name{.operation = fields[2], .label = fields[3]};
    std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), name.sequence);
    record.last.emplace(fields[0], name);
  }
  return record;
}

std::string long_wait_text(const LongWait& wait,
                           const std::vector<std::optional<RankRecord>>& records) {
  std::vector<std::string> absent;
  for (size_t i = 0; i < wait.ranks.size(); ++i) {
    std::string text = absence_text(wait, wait.ranks[i], records[i]);
    if (!text.empty()) absent.push_back(std::move(text));
  }
  if (absent.empty()) {
    return fmt::format("{}: all {} ranks have issued it, but it is not done; {}", place_text(wait),
                       wait.ranks.size(), place_to_look(records));
  }
  const size_t more = absent.size() > kShownRanks ? absent.size() - kShownRanks : 0;
  absent.resize(absent.size() - more);
  return fmt::format("{} for {}{}", place_text(wait), shardloom::join(absent, "; "),
                     more == 0 ? "" : fmt::format("; and {} more", more));
}

std::string long_wait_text(const LongWait& wait) {
  return fmt::format("{}; the store of the run is gone, so it is not known for whom",
                     place_text(wait));
}

}  // namespace shardloom::distributed
