#include "shardloom/parallel/apply.h"

#include <algorithm>
#include <set>

#include "shardloom/nn/module_names.h"

namespace shardloom::parallel {
namespace {

constexpr const char* kAsker = "fully_shard";

bool lies_in(const std::string& name, const std::string& ancestor) {
  return name == ancestor || nn::lies_below(name, ancestor);
}

bool lies_in_any(const std::string& name, const std::vector<std::string>& ancestors) {
  return std::any_of(ancestors.begin(), ancestors.end(),
                     [&](const std::string& ancestor) { return lies_in(name, ancestor); });
}

// The longest of `hooks` that holds the unit, "" when there is none.
std::string hook_of(const std::string& unit, const std::vector<std::string>& hooks) {
  std::string best;
  for (const std::string& hook : hooks) {
    if (unit != hook && lies_in(unit, hook) && hook.size() > best.size()) best = hook;
  }
  return best;
}

// Each unit right behind the unit that holds it; otherwise in the written order.
std::vector<std::string> prefetch_order(const std::vector<std::string>& units) {
  std::vector<std::string> order;
  for (const std::string& unit : units) {
    size_t place = order.size(), longest = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (unit == order[i] || !lies_in(unit, order[i]) || order[i].size() < longest) continue;
      longest = order[i].size();
      place = i + 1;
      while (place < order.size() && lies_in(order[place], order[i])) ++place;
    }
    order.insert(order.begin() + static_cast<ptrdiff_t>(place), unit);
  }
  return order;
}

// Units that are gathered together: those that share a hook module, and experts with the unit
// around them.
std::vector<std::vector<std::string>> gather_groups(const ShardingPlan& plan) {
  std::vector<std::string> units = plan.units;
  units.insert(units.end(), plan.expert_units.begin(), plan.expert_units.end());
  std::vector<std::vector<std::string>> groups;
  std::string last_hook;
  for (const std::string& unit : prefetch_order(units)) {
    std::string hook = hook_of(unit, plan.hooks);
    if (hook.empty() && lies_in_any(unit, plan.hooks)) hook = unit;
    const bool is_expert = std::find(plan.expert_units.begin(), plan.expert_units.end(), unit) !=
                           plan.expert_units.end();
    const bool joins = !groups.empty() && ((!hook.empty() && hook == last_hook) ||
                                           (is_expert && lies_in(unit, groups.back().front())));
    if (!joins) groups.emplace_back();
    groups.back().push_back(unit);
    last_hook = hook;
  }
  return groups;
}

class Prefetcher {
 public:
  Prefetcher(const nn::ModulesByName& modules, const ShardingPlan& plan)
      : modules_(modules), plan_(plan), groups_(gather_groups(plan)) {}

  // The first unit of a group is the first to be gathered in both directions.
  void set() const {
    for (size_t i = 0; i < groups_.size(); ++i) {
      FsdpModule first = FsdpModule::of(modules_.get(groups_[i].front(), kAsker));
      if (plan_.forward_prefetch > 0)
        first.set_modules_to_forward_prefetch(ahead(i, plan_.forward_prefetch, 1));
      if (plan_.backward_prefetch > 0)
        first.set_modules_to_backward_prefetch(ahead(i, plan_.backward_prefetch, -1));
    }
  }

 private:
  // The rest of the own group, then `count` groups in the direction.
  std::vector<nn::Module*> ahead(size_t from, int count, int direction) const {
    std::vector<nn::Module*> modules;
    auto add = [&](size_t group, size_t first) {
      for (size_t i = first; i < groups_[group].size(); ++i)
        modules.push_back(&modules_.get(groups_[group][i], kAsker));
    };
    add(from, 1);
    auto index = static_cast<ptrdiff_t>(from);
    for (int n = 0; n < count; ++n) {
      index += direction;
      if (index < 0 || index >= static_cast<ptrdiff_t>(groups_.size())) break;
      add(static_cast<size_t>(index), 0);
    }
    return modules;
  }

  const nn::ModulesByName& modules_;
  const ShardingPlan& plan_;
  std::vector<std::vector<std::string>> groups_;
};

std::vector<nn::Module*> in_execution_order(const nn::ModulesByName& modules,
                                            const std::vector<std::string>& units,
                                            const std::vector<std::string>& execution_order) {
  std::vector<nn::Module*> order;
  const std::set<std::string> wanted(units.begin(), units.end());
  for (const std::string& name : execution_order) {
    if (wanted.contains(name)) order.push_back(&modules.get(name, kAsker));
  }
  return order;
}

}  // namespace

FsdpModule apply(nn::Module& root,
                 const std::shared_ptr<const distributed::DeviceMesh>& mesh,
                 const ShardingPlan& given) {
  ShardingPlan plan = given;
  std::erase_if(plan.units,
                [&](const std::string& unit) { return lies_in_any(unit, plan.ignored); });
  const nn::ModulesByName modules(root);
  for (const std::string& name : plan.ignored) {
    for (const auto& p : modules.get(name, kAsker).named_parameters())
      plan.options.ignored_params.push_back(p.tensor);
  }
  std::vector<std::string> children_first = plan.units;
  children_first.insert(children_first.end(), plan.expert_units.begin(), plan.expert_units.end());
  std::stable_sort(
      children_first.begin(), children_first.end(), [](const std::string& a, const std::string& b) {
        return std::count(a.begin(), a.end(), '.') > std::count(b.begin(), b.end(), '.');
      });
  const auto shard = [&](nn::Module& module, FullyShardOptions options, bool is_expert = false) {
    FsdpModule sharded = fully_shard(module, is_expert ? plan.expert_mesh : mesh, options);
    if (plan.sum_gradients) sharded.set_gradient_divide_factor(1.0);
    return sharded;
  };
  for (const std::string& name : children_first) {
    FullyShardOptions options = plan.options;
    options.name = name;
    options.mp_policy.output_dtype.reset();
    const std::string hook = hook_of(name, plan.hooks);
    if (!hook.empty()) options.hook_module = &modules.get(hook, kAsker);
    const bool is_expert = std::find(plan.expert_units.begin(), plan.expert_units.end(), name) !=
                           plan.expert_units.end();
    shard(modules.get(name, kAsker), options, is_expert);
  }
  FsdpModule sharded_root = shard(root, plan.options);
  Prefetcher(modules, plan).set();
  const std::vector<nn::Module*> order =
      in_execution_order(modules, children_first, plan.execution_order);
  sharded_root.set_unit_order(order);
  // Backward starts with the unit that forward ended with.
  if (!order.empty()) FsdpModule::of(*order.back()).set_reshard_after_forward(false, false);
  return sharded_root;
}

}  // namespace shardloom::parallel
