// What a unit does, for the log and for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace shardloom::parallel {

enum class UnitAction {
  kAllGather,      // issued
  kReshard,        // gathered parameters freed
  kReduceScatter,  // issued
  kAllReduce,      // over replicas, issued
};

const char* action_name(UnitAction action);  // "all_gather", ...

struct UnitEvent {
  UnitAction action;
  std::string unit;   // name below the root; "(root)" for the root itself
  int64_t numel = 0;  // of the collective's input on this rank
};

using UnitListener = std::function<void(const UnitEvent&)>;

}  // namespace shardloom::parallel
