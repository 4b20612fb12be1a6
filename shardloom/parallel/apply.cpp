#include "shardloom/parallel/apply.h"

#include <algorithm>
#include <map>

#include "shardloom/base/strings.h"
#include "shardloom/nn/module_names.h"

namespace shardloom::parallel {
namespace {

using nn::lies_in;
using nn::lies_in_any;

constexpr const char* kAsker = "fully_shard";

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
    const bool is_expert = contains(plan.expert_units, unit);
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

// The plan without units whose parameters are ignored.
ShardingPlan without_ignored(const ShardingPlan& given) {
  ShardingPlan plan = given;
  std::erase_if(plan.units,
                [&](const std::string& unit) { return lies_in_any(unit, plan.ignored); });
  return plan;
}

std::vector<std::string> deepest_first(std::vector<std::string> names) {
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::count(a.begin(), a.end(), '.') > std::count(b.begin(), b.end(), '.');
  });
  return names;
}

// Shards the modules of these names, each as a unit of its own.
void shard_each(const nn::ModulesByName& modules,
                const std::vector<std::string>& names,
                const std::shared_ptr<const distributed::DeviceMesh>& mesh,
                const FullyShardOptions& common,
                const std::vector<std::string>& hooks) {
  for (const std::string& name : deepest_first(names)) {
    FullyShardOptions options = common;
    options.name = name;
    options.mp_policy.output_dtype.reset();
    const std::string hook = hook_of(name, hooks);
    if (!hook.empty()) options.hook_module = &modules.get(hook, kAsker);
    fully_shard(modules.get(name, kAsker), mesh, options);
  }
}

}  // namespace

void ignore_parameters(nn::Module& root, ShardingPlan& plan) {
  const nn::ModulesByName modules(root);
  for (const std::string& name : plan.ignored) {
    for (const auto& p : modules.get(name, kAsker).named_parameters())
      plan.options.ignored_params.push_back(p.tensor);
  }
}

void shard_experts(nn::Module& root, const ShardingPlan& plan) {
  shard_each(nn::ModulesByName(root), plan.expert_units, plan.expert_mesh, plan.options,
             plan.hooks);
}

void shard_units(nn::Module& root,
                 const std::shared_ptr<const distributed::DeviceMesh>& mesh,
                 const ShardingPlan& plan) {
  shard_each(nn::ModulesByName(root), without_ignored(plan).units, mesh, plan.options, plan.hooks);
  fully_shard(root, mesh, plan.options);
}

void set_prefetch(nn::Module& root, const ShardingPlan& plan) {
  const ShardingPlan kept = without_ignored(plan);
  const nn::ModulesByName modules(root);
  Prefetcher(modules, kept).set();
}

FsdpModule set_up_root(nn::Module& root, const ShardingPlan& plan) {
  FsdpModule sharded_root = FsdpModule::of(root);
  std::map<std::string, nn::Module*> units;
  for (const auto& [name, module] : root.named_modules()) {
    if (!FsdpModule::is_sharded(*module)) continue;
    if (plan.sum_gradients) FsdpModule::of(*module).set_gradient_divide_factor(1.0);
    if (module != &root) units.emplace(name, module);
  }
  std::vector<nn::Module*> order;
  nn::Module* first_in_backward = nullptr;
  for (const std::string& name : plan.execution_order) {
    const auto unit = units.find(name);
    if (unit == units.end()) continue;
    order.push_back(unit->second);
    if (contains(plan.forward_only, name)) {
      FsdpModule::of(*unit->second).set_unshard_in_backward(false);
    } else {
      first_in_backward = unit->second;
    }
  }
  sharded_root.set_unit_order(order);
  if (first_in_backward != nullptr)
    FsdpModule::of(*first_in_backward).set_reshard_after_forward(false, false);
  return sharded_root;
}

FsdpModule apply(nn::Module& root,
                 const std::shared_ptr<const distributed::DeviceMesh>& mesh,
                 const ShardingPlan& given) {
  ShardingPlan plan = given;
  ignore_parameters(root, plan);
  shard_experts(root, plan);
  shard_units(root, mesh, plan);
  set_prefetch(root, plan);
  return set_up_root(root, plan);
}

}  // namespace shardloom::parallel
