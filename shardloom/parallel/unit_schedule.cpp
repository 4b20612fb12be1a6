#include "shardloom/parallel/unit_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/nn/module_names.h"
#include "shardloom/parallel/fsdp_state.h"

namespace shardloom::parallel {

// Plays the rules of FsdpState and FsdpRoot without tensors.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(UnitSchedule& schedule)
      : schedule_(schedule), gathered_(schedule.units_.size(), Residence::kSharded) {}

  void run() {
    forward(0);
    in_backward_ = true;
    backward(forward_order_.size());
    finish_backward();
  }

 private:
  enum class Residence { kSharded, kGathering, kGathered };
  const std::vector<UnitInfo>& units() const { return schedule_.units_; }

  void step(UnitAction action, size_t unit) {
    schedule_.steps_.push_back({action, unit, in_backward_});
    int64_t bytes = 0;
    for (size_t i = 0; i < gathered_.size(); ++i)
      bytes += gathered_[i] == Residence::kSharded ? 0 : units()[i].gathered_bytes;
    schedule_.peak_gathered_bytes_ = std::max(schedule_.peak_gathered_bytes_, bytes);
  }

  void gather(size_t unit) {
    if (gathered_[unit] != Residence::kSharded || units()[unit].num_parameters == 0) return;
    gathered_[unit] = Residence::kGathering;
    if (units()[unit].shard_ranks > 1) step(UnitAction::kAllGather, unit);
  }

  void wait(size_t unit) {
    gather(unit);
    if (units()[unit].num_parameters > 0) gathered_[unit] = Residence::kGathered;
  }

  void free(size_t unit) {
    if (gathered_[unit] != Residence::kGathered) return;
    gathered_[unit] = Residence::kSharded;
    step(UnitAction::kReshard, unit);
  }

  void forward(size_t unit) {
    wait(unit);
    for (const size_t next : units()[unit].forward_prefetch) gather(next);
    for (size_t child = 0; child < units().size(); ++child) {
      if (units()[child].parent == unit) forward(child);
    }
    if (units()[unit].reshard_after_forward) free(unit);
    if (units()[unit].outputs_need_grad) forward_order_.push_back(unit);
  }

  // The units that forward left before place `end`, in reverse.
  void backward(size_t end) {
    for (size_t place = end; place-- > 0;) {
      const size_t unit = forward_order_[place];
      leave_until(unit);
      if (units()[unit].unshard_in_backward) wait(unit);
      prefetch(unit, place);
      open_.push_back(unit);
    }
    leave_until(units().size());
  }

  // Units whose backward is open end, but for those whose forward called `next`.
  void leave_until(size_t next) {
    while (!open_.empty() && !is_ancestor(open_.back(), next)) {
      const size_t unit = open_.back();
      open_.pop_back();
      if (units()[unit].inputs_need_grad || units()[unit].is_in_unit_order) {
        reduce(unit);
      } else {
        left_over_.push_back(unit);
      }
    }
  }

  bool is_ancestor(size_t unit, size_t below) const {
    while (below < units().size() && units()[below].parent) {
      below = *units()[below].parent;
      if (below == unit) return true;
    }
    return false;
  }

  void prefetch(size_t unit, size_t place) {
    if (units()[unit].backward_prefetch) {
      for (const size_t next : *units()[unit].backward_prefetch) gather(next);
    } else if (place > 0 && units()[forward_order_[place - 1]].unshard_in_backward) {
      gather(forward_order_[place - 1]);
    }
  }

  void reduce(size_t unit) {
    free(unit);
    if (units()[unit].reduce_bytes > 0 && units()[unit].shard_ranks > 1)
      step(UnitAction::kReduceScatter, unit);
  }

  // What autograd does not tell: units whose inputs need no gradient, and gathers never used.
  void finish_backward() {
    std::sort(left_over_.begin(), left_over_.end());
    for (const size_t unit : left_over_) reduce(unit);
    for (size_t unit = 0; unit < units().size(); ++unit) free(unit);
  }

  UnitSchedule& schedule_;
  std::vector<Residence> gathered_;
  std::vector<size_t> forward_order_;
  std::vector<size_t> open_;
  std::vector<size_t> left_over_;
  bool in_backward_ = false;
};

UnitSchedule::UnitSchedule(std::vector<UnitInfo> units) : units_(std::move(units)) {
  if (!units_.empty()) ScheduleBuilder(*this).run();
}

namespace {

std::string mib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

const char* verb(UnitAction action) {
  switch (action) {
    case UnitAction::kAllGather:
      return "gather";
    case UnitAction::kReshard:
      return "free";
    case UnitAction::kReduceScatter:
      return "reduce";
    case UnitAction::kAllReduce:
      break;
  }
  return "all_reduce";
}

// Position of each module in the order of execution; modules that are not named come last.
class Positions {
 public:
  explicit Positions(const std::vector<std::string>& order) {
    for (size_t i = 0; i < order.size(); ++i) position_.emplace(order[i], i);
  }
  size_t of(const std::string& module) const {
    const auto found = position_.find(module);
    return found == position_.end() ? position_.size() : found->second;
  }

 private:
  std::map<std::string, size_t> position_;
};

std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

struct Unit {
  std::string name;  // of its first module
  FsdpState* state;
};

UnitInfo describe_unit(const Unit& unit) {
  UnitInfo info;
  info.name = unit.name.empty() ? "(root)" : unit.name;
  const ParamGroup* group = unit.state->group();
  if (group == nullptr) return info;
  info.num_parameters = static_cast<int64_t>(group->params().size());
  for (const auto& param : group->params()) {
    int64_t numel = 1;
    for (const int64_t size : param->shape()) numel *= size;
    info.elements += numel;
  }
  const GroupBytes bytes = group->bytes();
  info.gathered_bytes = bytes.gathered;
  info.shard_bytes = bytes.shard;
  info.reduce_bytes = bytes.reduce;
  const auto& mesh = *group->mesh();
  info.shard_ranks = mesh.axis(mesh.num_axes() - 1).group->size();
  info.reshard_after_forward =
      group->reshard_after_forward && !(unit.name.empty() && group->is_reshard_automatic);
  info.unshard_in_backward = group->unshard_in_backward;
  return info;
}

}  // namespace

std::string UnitSchedule::describe() const {
  size_t width = 4;
  for (const UnitInfo& unit : units_) width = std::max(width, unit.name.size());
  std::string text =
      fmt::format("{:>4}  {:<{}}  {:>10}  {:>12}  {:>12}  {:>10}  {:>10}\n", "#", "unit", width,
                  "parameters", "elements", "gathered MiB", "shard MiB", "reduce MiB");
  for (size_t i = 0; i < units_.size(); ++i) {
    const UnitInfo& u = units_[i];
    text += fmt::format("{:>4}  {:<{}}  {:>10}  {:>12}  {:>12}  {:>10}  {:>10}\n", i, u.name, width,
                        u.num_parameters, u.elements, mib(u.gathered_bytes), mib(u.shard_bytes),
                        mib(u.reduce_bytes));
  }
  for (const bool backward : {false, true}) {
    std::vector<std::string> line;
    for (const ScheduleStep& step : steps_) {
      if (step.in_backward == backward)
        line.push_back(fmt::format("{} {}", verb(step.action), step.unit));
    }
    text += fmt::format("{}: {}\n", backward ? "backward" : "forward", join(line, ", "));
  }
  text += fmt::format("gathered at most: {} MiB of {} MiB\n", mib(peak_gathered_bytes_), [&] {
    int64_t all = 0;
    for (const UnitInfo& unit : units_) all += unit.gathered_bytes;
    return mib(all);
  }());
  return text;
}

UnitSchedule schedule_of(nn::Module& root, const std::vector<std::string>& execution_order) {
  const Positions positions(execution_order);
  std::vector<Unit> units;
  for (const auto& [name, module] : root.named_modules()) {
    FsdpState* state = FsdpState::of(*module);
    const bool known = std::any_of(units.begin(), units.end(),
                                   [&](const Unit& unit) { return unit.state == state; });
    if (state != nullptr && !known) units.push_back({name, state});
  }
  if (units.empty() || !units[0].name.empty())
    throw ConfigError("the root module is not sharded, so there is no schedule");
  std::stable_sort(units.begin() + 1, units.end(), [&](const Unit& a, const Unit& b) {
    return positions.of(a.name) < positions.of(b.name);
  });

  std::optional<size_t> first_trained;  // the earliest place where a gradient is wanted
  for (const auto& parameter : root.named_parameters()) {
    if (!parameter.tensor->requires_grad()) continue;
    const size_t position = positions.of(module_of(parameter.name));
    first_trained = std::min(first_trained.value_or(position), position);
  }
  std::map<const FsdpState*, size_t> index_of;
  for (size_t i = 0; i < units.size(); ++i) index_of[units[i].state] = i;
  std::vector<UnitInfo> infos;
  for (const Unit& unit : units) {
    UnitInfo info = describe_unit(unit);
    const size_t position = unit.name.empty() ? 0 : positions.of(unit.name);
    const bool is_root = unit.name.empty();
    const auto& ordered = units[0].state->unit_order;
    info.is_in_unit_order = std::find(ordered.begin(), ordered.end(), unit.state) != ordered.end();
    info.inputs_need_grad = !is_root && first_trained && *first_trained < position;
    info.outputs_need_grad =
        first_trained && (is_root || info.inputs_need_grad || info.reduce_bytes > 0);
    for (size_t other = 0; other < units.size(); ++other) {
      const bool above =
          units[other].name.empty() ? !is_root : nn::lies_below(unit.name, units[other].name);
      if (above && (!info.parent || units[other].name.size() > units[*info.parent].name.size()))
        info.parent = other;
    }
    for (const FsdpState* next : unit.state->forward_prefetch)
      info.forward_prefetch.push_back(index_of.at(next));
    if (unit.state->backward_prefetch) {
      info.backward_prefetch.emplace();
      for (const FsdpState* next : *unit.state->backward_prefetch)
        info.backward_prefetch->push_back(index_of.at(next));
    }
    infos.push_back(std::move(info));
  }
  return UnitSchedule(std::move(infos));
}

}  // namespace shardloom::parallel
