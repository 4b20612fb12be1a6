// What fully_shard will do in one training step (forward, backward, gradients reduced), computed
// before it runs from the same units, prefetch lists and policies that the run time follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/nn/module.h"
#include "shardloom/parallel/unit_event.h"

namespace shardloom::parallel {

struct UnitInfo {
  std::string name;  // "(root)" for the root
  int64_t num_parameters = 0;
  int64_t elements = 0;        // of the whole parameters
  int64_t gathered_bytes = 0;  // whole parameters with padding, in the type they are gathered in
  int64_t shard_bytes = 0;     // on each rank, in the stored type
  int64_t reduce_bytes = 0;    // input of the gradient reduction; 0 when all are frozen
  int shard_ranks = 1;
  bool reshard_after_forward = true;
  bool unshard_in_backward = true;
  bool inputs_need_grad = false;   // backward leaves the unit through its inputs
  bool outputs_need_grad = false;  // backward reaches the unit
  bool is_in_unit_order = false;   // FsdpModule::set_unit_order(): reduced before the next unit
  std::optional<size_t> parent;    // the unit whose forward calls this one; none for the root
  std::vector<size_t> forward_prefetch;                  // gathers issued once its own is done
  std::optional<std::vector<size_t>> backward_prefetch;  // nullopt: the unit before in forward
};

struct ScheduleStep {
  UnitAction action;
  size_t unit;
  bool in_backward;
};

class UnitSchedule {
 public:
  // Units in the order in which forward reaches them, the root first.
  explicit UnitSchedule(std::vector<UnitInfo> units);

  const std::vector<UnitInfo>& units() const { return units_; }
  // All events of a step with one micro batch, in order.
  const std::vector<ScheduleStep>& steps() const { return steps_; }
  // Most bytes of gathered parameters (wires of gathers under way included) at any time.
  int64_t peak_gathered_bytes() const { return peak_gathered_bytes_; }
  // The table of units and the order of gathers, frees and reductions, for people.
  std::string describe() const;

 private:
  friend class ScheduleBuilder;
  std::vector<UnitInfo> units_;
  std::vector<ScheduleStep> steps_;
  int64_t peak_gathered_bytes_ = 0;
};

// The schedule of a module that fully_shard was applied to (on the meta device as well).
// `execution_order`: names of modules in the order in which forward reaches them, parents before
// children.
UnitSchedule schedule_of(nn::Module& root, const std::vector<std::string>& execution_order);

}  // namespace shardloom::parallel
