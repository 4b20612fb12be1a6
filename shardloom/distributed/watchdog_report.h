// What the watchdogs of the ranks tell each other, and the sentence about a collective that takes
// long.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/distributed/collective_log.h"

namespace shardloom::distributed {

// The state of one rank: the last collective that it has issued in each of its groups.
struct RankRecord {
  std::string host;
  std::map<std::string, CollectiveName> last;  // by CollectiveLog::key()

  std::string encode() const;
  static RankRecord decode(std::string_view text);
};

// A collective that has been open for `seconds`, and the members of its group.
struct LongWait {
  std::string group;
  std::string key;  // CollectiveLog::key()
  CollectiveName name;
  double seconds = 0;
  std::vector<int> ranks;  // of the world
};

// "waiting 60 s in group dp, all_gather #12 (unit a) for rank 1, which has issued #11 last
// (reduce_scatter, unit b)". `records` belong to the ranks; nullopt where nothing is known.
std::string long_wait_text(const LongWait& wait,
                           const std::vector<std::optional<RankRecord>>& records);
// The same when the records cannot be had.
std::string long_wait_text(const LongWait& wait);

}  // namespace shardloom::distributed
