#include "shardloom/parallel/unit_event.h"

namespace shardloom::parallel {

const char* action_name(UnitAction action) {
  switch (action) {
    case UnitAction::kAllGather:
      return "all_gather";
    case UnitAction::kReshard:
      return "reshard";
    case UnitAction::kReduceScatter:
      return "reduce_scatter";
    case UnitAction::kAllReduce:
      break;
  }
  return "all_reduce";
}

}  // namespace shardloom::parallel
