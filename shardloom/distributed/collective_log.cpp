#include "shardloom/distributed/collective_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace shardloom::distributed {

std::string group_key(const std::string& group, const std::vector<int>& ranks) {
  const int step = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != step) return fmt::format("{} {}", group, fmt::join(ranks, ","));
  }
  return fmt::format("{} {}..{}/{}", group, ranks.front(), ranks.back(), step);
}

CollectiveLog::CollectiveLog(std::string group, std::vector<int> ranks, int rank)
    : group_(std::move(group)),
      ranks_(std::move(ranks)),
      key_(group_key(group_, ranks_)),
      rank_(rank) {}

std::string CollectiveLog::place(const char* operation, uint64_t sequence) const {
  return fmt::format("rank {}, group {}, {} #{}", world_rank(), group_, operation, sequence);
}

void CollectiveLog::open(OpenCollective& collective) {
  std::lock_guard lock(mutex_);
  collective.before = last_;
  (last_ == nullptr ? first_ : last_->after) = &collective;
  last_ = &collective;
  last_operation_ = collective.operation;
  last_sequence_ = collective.sequence;
  last_label_ = collective.label;
}

void CollectiveLog::close(OpenCollective& collective) {
  std::lock_guard lock(mutex_);
  (collective.before == nullptr ? first_ : collective.before->after) = collective.after;
  (collective.after == nullptr ? last_ : collective.after->before) = collective.before;
}

std::optional<CollectiveLog::Waiting> CollectiveLog::oldest_open() const {
  std::lock_guard lock(mutex_);
  for (const OpenCollective* open = first_; open != nullptr; open = open->after) {
    if (open->work->isCompleted()) continue;
    return Waiting{{open->operation, open->sequence, open->label}, open->issued};
  }
  return std::nullopt;
}

CollectiveName CollectiveLog::last_issued() const {
  std::lock_guard lock(mutex_);
  return {last_operation_, last_sequence_, last_label_};
}

}  // namespace shardloom::distributed
