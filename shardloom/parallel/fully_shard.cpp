#include "shardloom/parallel/fully_shard.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/parallel/fsdp_root.h"
#include "shardloom/parallel/fsdp_state.h"

namespace shardloom::parallel {
namespace {

std::string join_name(const std::string& prefix, const std::string& name) {
  return prefix.empty() || name.empty() ? prefix + name : prefix + "." + name;
}

// Tensors that units have taken, and the shards that they made of them. A whole one that is still
// alive belongs to a tied parameter; a shard at the site of a parameter, to a module that two units
// have in common.
class TakenTensors {
 public:
  static TakenTensors& instance() {
    static TakenTensors taken;
    return taken;
  }

  // The parameter that took this tensor's memory or part of it before, "" when none did.
  std::string owner(const at::Tensor& tensor) const {
    const auto [begin, end] = by_storage_.equal_range(storage_of(tensor));
    for (auto entry = begin; entry != end; ++entry) {
      const Taken& taken = entry->second;
      const bool overlaps = first_byte(tensor) < taken.end && taken.begin < end_byte(tensor);
      if (overlaps && !taken.storage.expired()) return taken.name;
    }
    return {};
  }

  void add(const at::Tensor& tensor, const std::string& name) {
    std::erase_if(by_storage_, [](const auto& item) { return item.second.storage.expired(); });
    by_storage_.emplace(storage_of(tensor), Taken{tensor.storage().getWeakStorageImpl(),
                                                  first_byte(tensor), end_byte(tensor), name});
  }

 private:
  struct Taken {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t begin, end;  // bytes
    std::string name;
  };
  static c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }
  static int64_t first_byte(const at::Tensor& tensor) {
    return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  }
  static int64_t end_byte(const at::Tensor& tensor) {
    return first_byte(tensor) + static_cast<int64_t>(tensor.nbytes());
  }
  std::unordered_multimap<c10::StorageImpl*, Taken> by_storage_;
};

// The parameters below some modules that no unit has yet, each tied one once.
class Collector {
 public:
  explicit Collector(const std::vector<const at::Tensor*>& ignored) : ignored_(ignored) {}

  void visit(nn::Module& module, const std::string& name) {
    if (std::find(visited_.begin(), visited_.end(), &module) != visited_.end()) return;
    visited_.push_back(&module);
    for (const auto& [child_name, child] : module.children()) {
      if (FsdpState::of(*child) == nullptr) visit(*child, join_name(name, child_name));
    }
    for (const nn::NamedTensor& own : module.own_parameters()) {
      if (!own.tensor->defined() || is_ignored(own.tensor)) continue;
      add({join_name(name, own.name), own.tensor});
    }
  }

  std::vector<std::vector<ParamSite>> take() { return std::move(params_); }

 private:
  bool is_ignored(const at::Tensor* tensor) const {
    return std::find(ignored_.begin(), ignored_.end(), tensor) != ignored_.end();
  }
  void add(ParamSite site) {
    for (auto& sites : params_) {
      if (!sites[0].tensor->is_same(*site.tensor)) continue;
      sites.push_back(std::move(site));
      return;
    }
    params_.push_back({std::move(site)});
  }

  const std::vector<const at::Tensor*>& ignored_;
  std::vector<nn::Module*> visited_;
  std::vector<std::vector<ParamSite>> params_;
};

void check_modules(const std::vector<nn::Module*>& modules, const std::string& name) {
  if (modules.empty()) throw ConfigError("fully_shard: an empty list of modules");
  for (nn::Module* module : modules) {
    if (std::count(modules.begin(), modules.end(), module) > 1)
      throw ConfigError("fully_shard: a module is twice in the list");
    if (!module->is_callable()) {
      throw ConfigError(
          "fully_shard: {} does not implement forward (a list of modules?); shard its children",
          name.empty() ? "the module" : name);
    }
    if (FsdpState::of(*module) != nullptr) {
      throw ConfigError("fully_shard: {} is sharded already; each module may be sharded once",
                        name.empty() ? "the module" : name);
    }
  }
}

// Those that lie in no other module of the list.
std::vector<nn::Module*> roots_of(const std::vector<nn::Module*>& modules) {
  std::vector<nn::Module*> roots;
  for (nn::Module* module : modules) {
    const bool inside = std::any_of(modules.begin(), modules.end(), [&](nn::Module* other) {
      if (other == module) return false;
      const auto below = other->named_modules();
      return std::any_of(below.begin(), below.end(),
                         [&](const auto& item) { return item.second == module; });
    });
    if (!inside) roots.push_back(module);
  }
  return roots;
}

void refuse_ties(const std::vector<std::vector<ParamSite>>& params) {
  for (const auto& sites : params) {
    const std::string owner = TakenTensors::instance().owner(*sites[0].tensor);
    if (owner.empty()) continue;
    throw ConfigError(
        "fully_shard: {} is tied to {}, which belongs to another unit; shard both modules in one "
        "call, and children before their parents",
        sites[0].name, owner);
  }
}

std::unique_ptr<ParamGroup> make_group(const std::vector<nn::Module*>& modules,
                                       std::shared_ptr<const distributed::DeviceMesh> mesh,
                                       const FullyShardOptions& options) {
  Collector collector(options.ignored_params);
  for (nn::Module* module : roots_of(modules)) collector.visit(*module, options.name);
  const auto found = collector.take();
  refuse_ties(found);
  ParamPlacement placement;
  const auto& shard = *mesh->axis(mesh->num_axes() - 1).group;
  placement.rank = shard.rank();
  placement.size = shard.size();
  placement.device = mesh->device();
  placement.offload = options.offload_policy.cpu;
  placement.pin_memory = options.offload_policy.pin_memory;
  ParamList params;
  for (const auto& sites : found) {
    const at::Tensor whole = *sites[0].tensor;
    params.push_back(std::make_unique<FsdpParam>(sites, placement));
    TakenTensors::instance().add(whole, sites[0].name);
    TakenTensors::instance().add(*sites[0].tensor, sites[0].name);
  }
  if (params.empty()) return nullptr;
  auto group = std::make_unique<ParamGroup>(std::move(params), std::move(mesh), options);
  group->set_unit_name(options.name);
  return group;
}

std::vector<FsdpState*> states_of(const std::vector<nn::Module*>& modules) {
  std::vector<FsdpState*> states;
  for (nn::Module* module : modules) {
    FsdpState* state = FsdpState::of(*module);
    if (state == nullptr) throw ConfigError("fully_shard: a module of the list is not sharded");
    states.push_back(state);
  }
  return states;
}

template <typename Action>
void for_each_group(FsdpState& state, bool recurse, const Action& action) {
  if (!recurse) {
    if (state.group() != nullptr) action(*state.group());
    return;
  }
  for (nn::Module* module : state.modules()) {
    for (FsdpState* below : FsdpState::below(*module)) {
      if (below->group() != nullptr) action(*below->group());
    }
  }
}

}  // namespace

FsdpModule fully_shard(const std::vector<nn::Module*>& modules,
                       std::shared_ptr<const distributed::DeviceMesh> mesh,
                       const FullyShardOptions& options) {
  check_modules(modules, options.name);
  if (mesh == nullptr || mesh->num_axes() > 2) {
    throw ConfigError(
        "fully_shard: needs a mesh of one axis (shard) or two (replicate, shard), got {}",
        mesh == nullptr ? "none" : mesh->describe());
  }
  auto group = make_group(modules, std::move(mesh), options);
  auto state = std::make_shared<FsdpState>(modules, std::move(group), options.mp_policy,
                                           options.hook_module);
  for (nn::Module* module : modules)
    module->add_wrapper(std::make_shared<FsdpWrapper>(state, /*is_owner=*/true,
                                                      /*hooks=*/options.hook_module == nullptr));
  if (options.hook_module != nullptr) {
    options.hook_module->add_wrapper(
        std::make_shared<FsdpWrapper>(state, /*is_owner=*/false, /*hooks=*/true));
  }
  return FsdpModule(state);
}

FsdpModule fully_shard(nn::Module& module,
                       std::shared_ptr<const distributed::DeviceMesh> mesh,
                       const FullyShardOptions& options) {
  return fully_shard(std::vector<nn::Module*>{&module}, std::move(mesh), options);
}

void UnshardHandle::wait() {
  if (state_ != nullptr && state_->group() != nullptr) state_->group()->wait_for_unshard();
  state_ = nullptr;
}

FsdpModule FsdpModule::of(nn::Module& module) {
  FsdpState* state = FsdpState::of(module);
  if (state == nullptr) throw ConfigError("fully_shard: the module is not sharded");
  return FsdpModule(state->shared_from_this());
}

bool FsdpModule::is_sharded(const nn::Module& module) { return FsdpState::of(module) != nullptr; }

void FsdpModule::reshard() {
  if (state_->group() != nullptr) state_->group()->reshard();
}

UnshardHandle FsdpModule::unshard(bool async_op) {
  state_->unshard();
  UnshardHandle handle(state_.get());
  if (!async_op) handle.wait();
  return handle;
}

void FsdpModule::set_is_last_backward(bool is_last) {
  FsdpRoot* root = state_->root();
  (root != nullptr ? root->states()[0] : state_.get())->is_last_backward = is_last;
}

void FsdpModule::set_requires_gradient_sync(bool requires_sync, bool recurse) {
  for_each_group(*state_, recurse, [&](ParamGroup& group) {
    group.reduce_grads = requires_sync;
    group.reducer.all_reduce_grads = requires_sync;
  });
}

void FsdpModule::set_requires_all_reduce(bool requires_all_reduce, bool recurse) {
  for_each_group(*state_, recurse,
                 [&](ParamGroup& group) { group.reducer.all_reduce_grads = requires_all_reduce; });
}

void FsdpModule::set_reshard_after_forward(bool reshard_after_forward, bool recurse) {
  for_each_group(*state_, recurse, [&](ParamGroup& group) {
    group.set_reshard_after_forward(reshard_after_forward);
  });
}

void FsdpModule::set_reshard_after_backward(bool reshard_after_backward, bool recurse) {
  for_each_group(*state_, recurse,
                 [&](ParamGroup& group) { group.reshard_after_backward = reshard_after_backward; });
}

void FsdpModule::set_modules_to_forward_prefetch(const std::vector<nn::Module*>& modules) {
  state_->forward_prefetch = states_of(modules);
}

void FsdpModule::set_modules_to_backward_prefetch(const std::vector<nn::Module*>& modules) {
  state_->backward_prefetch = states_of(modules);
}

void FsdpModule::set_gradient_divide_factor(double factor) {
  if (!(factor > 0))
    throw ConfigError("fully_shard: gradient divide factor {} is not positive", factor);
  if (state_->group() != nullptr) state_->group()->reducer.divide_factor = factor;
}

void FsdpModule::set_force_sum_reduction_for_comms(bool enable) {
  if (state_->group() != nullptr) state_->group()->reducer.force_sum = enable;
}

void FsdpModule::set_unshard_in_backward(bool unshard_in_backward) {
  if (state_->group() != nullptr) state_->group()->unshard_in_backward = unshard_in_backward;
}

void FsdpModule::set_all_reduce_hook(std::function<void(const at::Tensor&)> hook) {
  if (state_->group() != nullptr) state_->group()->reducer.hook = std::move(hook);
}

void FsdpModule::set_custom_all_gather(std::shared_ptr<AllGather> comm) {
  if (state_->group() != nullptr) state_->group()->all_gather.custom = std::move(comm);
}

void FsdpModule::set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm) {
  if (state_->group() != nullptr) state_->group()->reducer.reduce_scatter.custom = std::move(comm);
}

void FsdpModule::set_allocate_memory_from_process_group_for_comm(bool enable) {
  ParamGroup* group = state_->group();
  if (group == nullptr) return;
  const bool gathers = group->all_gather.custom != nullptr;
  if (gathers || group->reducer.reduce_scatter.custom != nullptr) {
    throw ConfigError(
        "fully_shard: {} has a custom {}, which allocates by itself; "
        "set_allocate_memory_from_process_group_for_comm is for the mesh's own collectives",
        group->unit_name().empty() ? "the unit" : group->unit_name(),
        gathers ? "all-gather" : "reduce-scatter");
  }
  group->all_gather.allocates_from_group = enable;
  group->reducer.reduce_scatter.allocates_from_group = enable;
}

void FsdpModule::set_post_optim_event(std::function<void()> wait) {
  FsdpRoot* root = state_->root();
  (root != nullptr ? root->states()[0] : state_.get())->post_optim_event = std::move(wait);
}

void FsdpModule::set_unit_order(const std::vector<nn::Module*>& modules) {
  FsdpRoot* root = state_->root();
  (root != nullptr ? root->states()[0] : state_.get())->unit_order = states_of(modules);
}

void FsdpModule::set_event_listener(UnitListener listener) {
  if (FsdpRoot* root = state_->root()) {
    root->context()->listener = std::move(listener);
  } else {
    state_->listener = std::move(listener);
  }
}

std::string FsdpModule::unit_name() const {
  return state_->group() != nullptr ? state_->group()->unit_name() : std::string();
}

std::vector<std::string> FsdpModule::first_run_order() const {
  return state_->root() != nullptr ? state_->root()->first_run_order() : std::vector<std::string>();
}

std::vector<ShardedParameter> sharded_parameters(nn::Module& root) {
  std::map<const at::Tensor*, std::pair<FsdpParam*, ParamGroup*>> by_site;
  for (FsdpState* state : FsdpState::below(root)) {
    if (state->group() == nullptr) continue;
    for (const auto& param : state->group()->params()) {
      for (const ParamSite& site : param->sites())
        by_site[site.tensor] = {param.get(), state->group()};
    }
    const auto& params = state->group()->params();
    const bool is_real = std::none_of(params.begin(), params.end(), [](const auto& param) {
      return param->sites()[0].tensor->is_meta();
    });
    if (is_real) state->group()->prepare();
  }
  std::vector<ShardedParameter> out;
  std::vector<const void*> seen;
  for (const nn::NamedTensor& named : root.named_parameters()) {
    const auto found = by_site.find(named.tensor);
    const void* identity = found == by_site.end()
                               ? static_cast<const void*>(named.tensor->unsafeGetTensorImpl())
                               : found->second.first;
    if (std::find(seen.begin(), seen.end(), identity) != seen.end()) continue;
    seen.push_back(identity);
    if (found == by_site.end()) {
      out.push_back({distributed::ShardedTensor::whole(named.name, named.tensor->detach()),
                     *named.tensor, /*is_sharded=*/false, nullptr});
      continue;
    }
    const auto& [param, group] = found->second;
    const auto& mesh = group->mesh();
    out.push_back({{named.name, param->sharded().detach(), param->shape(), param->first_row(),
                    mesh->axis(mesh->num_axes() - 1).group},
                   param->sharded(),
                   /*is_sharded=*/true,
                   mesh});
  }
  return out;
}

void materialize(nn::Module& root, c10::Device device) {
  for (FsdpState* state : FsdpState::below(root)) {
    if (state->group() == nullptr) continue;
    for (const auto& param : state->group()->params()) param->materialize(device);
  }
  const at::NoGradGuard no_grad;
  const auto fill = [&](const nn::NamedTensor& named) {
    if (!named.tensor->is_meta()) return;
    const bool trained = named.tensor->requires_grad();
    *named.tensor = at::empty_like(*named.tensor, named.tensor->options().device(device));
    named.tensor->set_requires_grad(trained);
  };
  for (const nn::NamedTensor& named : root.named_parameters()) fill(named);
  for (const nn::NamedTensor& named : root.named_buffers()) fill(named);
}

}  // namespace shardloom::parallel
