#include "shardloom/trainer/sharding.h"

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/pattern.h"
#include "shardloom/features/chunk_loss.h"
#include "shardloom/nn/module_names.h"
#include "shardloom/parallel/context_parallel.h"
#include "shardloom/parallel/expert_parallel.h"
#include "shardloom/trainer/plan_check.h"

namespace shardloom::trainer {
namespace {

constexpr const char* kUnits = "parallel.fsdp_plan.apply_modules";
constexpr const char* kIgnored = "parallel.fsdp_plan.ignored_modules";

std::optional<at::ScalarType> dtype_of(const std::optional<std::string>& name, const char* key) {
  if (!name) return std::nullopt;
  if (*name == "fp32") return at::kFloat;
  if (*name == "bf16") return at::kBFloat16;
  if (*name == "fp16") return at::kHalf;
  throw ConfigError("parallel.fsdp_plan.{}: \"{}\" is not supported yet; use fp32, bf16 or fp16",
                    key, *name);
}

std::vector<std::string> match(const config::Patterns& patterns,
                               const std::vector<std::string>& names,
                               const std::string& key) {
  return patterns.empty() ? std::vector<std::string>()
                          : config::match_modules(patterns, names, key);
}

// The first of `names` that lies strictly above the module, "" when none does.
std::string one_above(const std::string& module, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (nn::lies_below(module, name)) return name;
  }
  return {};
}

// `called`: modules that the model calls past their parents' forward.
void require_gathered_in_time(const parallel::ShardingPlan& plan,
                              const std::vector<std::string>& called) {
  for (const std::string& module : called) {
    const bool is_unit = contains(plan.units, module);
    const std::string holder = one_above(module, is_unit ? plan.hooks : plan.units);
    if (holder.empty()) continue;
    if (is_unit) {
      throw ConfigError(
          "parallel.fsdp_plan.hook_modules: {} would gather {} for its own call, but the model "
          "calls that by itself; leave {} out, or list it as a hook module of its own",
          holder, module, module);
    }
    throw ConfigError(
        "{}: the model calls {} by itself, where the unit {} around it is not gathered; list {} as "
        "a unit, too",
        kUnits, module, holder, module);
  }
}

// Experts that are cut among ranks must be sharded over the ranks that hold the same ones, and
// nothing else may be.
std::vector<std::string> expert_units(const config::EpPlan& plan,
                                      const std::vector<std::string>& names) {
  constexpr const char* kKey = "parallel.ep_plan.apply_efsdp_modules";
  const auto cut = match(plan.apply_modules, names, "parallel.ep_plan.apply_modules");
  if (plan.apply_efsdp_modules.empty()) return cut;
  auto units = match(plan.apply_efsdp_modules, names, kKey);
  for (const std::string& unit : units) {
    if (!contains(cut, unit))
      throw ConfigError("{}: {} is none of ep_plan.apply_modules; leave it out", kKey, unit);
  }
  for (const std::string& module : cut) {
    if (!contains(units, module)) {
      throw ConfigError("{}: {} is missing, which ep_plan.apply_modules cuts among ranks", kKey,
                        module);
    }
  }
  return units;
}

}  // namespace

distributed::ParallelDims parallel_dims(const config::ParallelConfig& p, int world_size) {
  return distributed::ParallelDims::from_sizes(
      world_size, static_cast<int>(p.fully_shard_parallel_size.value_or(world_size)),
      static_cast<int>(p.ulysses_parallel_size), static_cast<int>(p.expert_parallel_size),
      static_cast<int>(p.expert_fully_shard_parallel_size.value_or(0)),
      static_cast<int>(p.expert_data_parallel_size));
}

parallel::ShardingPlan sharding_plan(const config::TrainConfig& config,
                                     models::Model& model,
                                     const distributed::ParallelMeshes& meshes) {
  const config::FsdpPlan& fsdp = config.parallel.fsdp_plan;
  const std::vector<std::string> names = module_names(model);
  parallel::ShardingPlan plan;
  plan.units = match(fsdp.apply_modules, names, kUnits);
  plan.ignored = match(fsdp.ignored_modules, names, kIgnored);
  plan.hooks = match(fsdp.hook_modules.value_or(config::Patterns{}), names,
                     "parallel.fsdp_plan.hook_modules");
  plan.options.mp_policy.param_dtype = dtype_of(fsdp.param_dtype, "param_dtype");
  plan.options.mp_policy.reduce_dtype = dtype_of(fsdp.reduce_dtype, "reduce_dtype");
  plan.options.mp_policy.output_dtype = dtype_of(fsdp.output_dtype, "output_dtype");
  plan.options.mp_policy.cast_forward_inputs = fsdp.cast_forward_inputs;
  plan.options.offload_policy.cpu = fsdp.cpu_offload;
  // Automatic keeps the root's own parameters gathered between forward and backward, as torch does.
  if (!fsdp.reshard_after_forward) plan.options.reshard_after_forward = false;
  plan.forward_prefetch = static_cast<int>(fsdp.num_to_forward_prefetch);
  plan.backward_prefetch = static_cast<int>(fsdp.num_to_backward_prefetch);
  plan.execution_order = model.execution_order();
  require_gathered_in_time(plan, model.called_modules());
  if (meshes.dims.ep > 1) {
    plan.expert_units = expert_units(config.parallel.ep_plan, names);
    plan.expert_mesh = meshes.expert_fully_shard;
    std::erase_if(plan.units,
                  [&](const std::string& unit) { return contains(plan.expert_units, unit); });
  }
  return plan;
}

features::FeaturePlan feature_plan(const config::TrainConfig& config, models::Model& model) {
  const config::FeaturesConfig& f = config.features;
  const std::vector<std::string> names = module_names(model);
  features::FeaturePlan plan;
  if (f.recompute) {
    plan.recompute =
        match(f.recompute_plan.apply_modules, names, "features.recompute_plan.apply_modules");
    if (f.recompute_plan.use_reentrant) plan.recompute_mode = features::RecomputeMode::kReentrant;
  }
  if (f.enable_activation_offload) {
    const auto blocks = match(f.activation_offload_plan.apply_modules.value_or(config::Patterns{}),
                              names, "features.activation_offload_plan.apply_modules");
    // The last block to run keeps its input, whatever the written order.
    for (const std::string& name : model.execution_order()) {
      if (contains(blocks, name)) plan.offload.push_back(name);
    }
  }
  if (f.enable_chunk_loss || f.enable_dynamic_chunk_loss) {
    const char* key = "features.chunkloss_plan.apply_module";
    const auto heads = match({f.chunkloss_plan.apply_module}, names, key);
    if (heads.size() != 1) throw ConfigError("{}: {} modules match, not one", key, heads.size());
    plan.chunk_loss = heads[0];
    plan.chunk_rows = f.enable_dynamic_chunk_loss
                          ? features::dynamic_chunk_rows(f.chunkloss_plan.total_chunk_size)
                          : f.chunkloss_plan.chunk_size;
  }
  return plan;
}

namespace {

parallel::ExpertPlan expert_plan(const config::TrainConfig& config, models::Model& model) {
  const auto facts = model.facts();
  if (!facts || facts->experts == 0) {
    throw ConfigError("parallel.expert_parallel_size is {}, but {} has no experts",
                      config.parallel.expert_parallel_size, config.model.model_id);
  }
  constexpr const char* kKey = "parallel.ep_plan.apply_modules";
  parallel::ExpertPlan plan;
  plan.modules = match(config.parallel.ep_plan.apply_modules, module_names(model), kKey);
  plan.num_experts = facts->experts;
  if (config.parallel.ep_plan.dispatcher == "allgather")
    plan.dispatcher = parallel::DispatcherKind::kAllGather;
  const std::vector<std::string> experts = model.expert_modules();
  const std::vector<std::string> ignored =
      match(config.parallel.fsdp_plan.ignored_modules, module_names(model), kIgnored);
  for (const std::string& name : plan.modules) {
    if (nn::lies_in_any(name, ignored)) {
      throw ConfigError(
          "{}: {} is cut among ranks (expert_parallel_size {}) and cannot stay whole; leave it out",
          kIgnored, name, config.parallel.expert_parallel_size);
    }
    if (contains(experts, name)) continue;
    throw ConfigError("{}: {} does not hold experts; {} does", kKey, name, experts.at(0));
  }
  return plan;
}

parallel::ContextParallelSeams context_seams(const config::TrainConfig& config,
                                             models::Model& model) {
  const models::SequenceSeams seams = model.sequence_seams();
  if (seams.attention.empty()) {
    throw ConfigError("parallel.ulysses_parallel_size is {}, but {} cannot cut its sequences",
                      config.parallel.ulysses_parallel_size, config.model.model_id);
  }
  return {seams.split_inputs, seams.gather_outputs, seams.attention};
}

// A head in chunks does, unless it runs once more in backward.
bool makes_gradients_in_forward(const features::FeaturePlan& plan) {
  const std::string& head = plan.chunk_loss;
  return !head.empty() && !nn::lies_in_any(head, plan.recompute);
}

}  // namespace

std::unique_ptr<ExpertLoads> cut_model(const config::TrainConfig& config,
                                       models::Model& model,
                                       const distributed::ParallelMeshes& meshes) {
  if (meshes.dims.ep > 1)
    parallel::expert_parallel(model, expert_plan(config, model), meshes.expert_parallel);
  if (meshes.dims.cp > 1)
    parallel::context_parallel(model, context_seams(config, model), meshes.context_parallel);
  return std::make_unique<ExpertLoads>(model);
}

ParallelModel make_parallel(const config::TrainConfig& config,
                            models::Model& model,
                            const distributed::ParallelMeshes& meshes) {
  auto expert_loads = cut_model(config, model, meshes);
  const features::FeaturePlan features = feature_plan(config, model);
  auto offload = features::apply(model, features);
  parallel::ShardingPlan sharding = sharding_plan(config, model, meshes);
  if (makes_gradients_in_forward(features)) sharding.forward_only = {features.chunk_loss};
  return {parallel::apply(model, meshes.fully_shard, sharding), std::move(offload),
          std::move(expert_loads)};
}

std::vector<int> expert_owners(const distributed::ParallelDims& dims, int rank) {
  const int first = rank / (dims.efsdp * dims.ep) * (dims.efsdp * dims.ep);
  std::vector<int> ranks;
  for (int e = 0; e < dims.ep; ++e) {
    for (int f = 0; f < dims.efsdp; ++f) ranks.push_back(first + f * dims.ep + e);
  }
  return ranks;
}

std::vector<parallel::ShardedParameter> whole_parameters(
    const config::TrainConfig& config,
    models::Model& model,
    const distributed::ParallelMeshes& meshes,
    const std::shared_ptr<distributed::Group>& experts) {
  auto parameters = parallel::sharded_parameters(model);
  if (experts == nullptr) return parameters;
  for (const std::string& module : expert_plan(config, model).modules) {
    for (parallel::ShardedParameter& p : parameters) {
      if (p.tensor.name.rfind(module + ".", 0) != 0) continue;
      if (p.tensor.shape[0] % meshes.dims.efsdp != 0) {
        throw ConfigError("{}: {} rows of one rank's experts do not divide among {} shards",
                          p.tensor.name, p.tensor.shape[0], meshes.dims.efsdp);
      }
      p.tensor.first_row += meshes.expert_parallel->rank() * p.tensor.shape[0];
      p.tensor.shape[0] *= meshes.dims.ep;
      p.tensor.group = experts;
    }
  }
  return parameters;
}

std::string unit_order_warning(const config::TrainConfig& config,
                               models::Model& model,
                               const std::vector<std::string>& ran) {
  const auto units = match(config.parallel.fsdp_plan.apply_modules, module_names(model), kUnits);
  return config::order_warning(units, ran, kUnits).value_or("");
}

std::vector<optim::OptimizedTensor> trained_shards(
    const std::vector<parallel::ShardedParameter>& parameters, WeightDecay weight_decay) {
  std::vector<optim::OptimizedTensor> shards;
  for (const auto& p : parameters) {
    if (!p.parameter.requires_grad()) continue;
    const bool decays = weight_decay == WeightDecay::kAll || p.tensor.shape.size() > 1;
    shards.push_back({p.tensor.name, p.tensor.local, p.parameter.grad(), decays});
  }
  return shards;
}

std::vector<optim::GradientShards> gradient_shards(
    const std::vector<parallel::ShardedParameter>& parameters) {
  std::vector<optim::GradientShards> sets;
  for (const auto& p : parameters) {
    if (!p.parameter.requires_grad()) continue;
    auto set = std::find_if(sets.begin(), sets.end(),
                            [&](const auto& s) { return s.group == p.tensor.group; });
    if (set == sets.end()) set = sets.insert(sets.end(), {{}, p.tensor.group});
    set->tensors.push_back({p.tensor.name, p.tensor.local, p.parameter.grad()});
  }
  return sets;
}

void sum_whole_gradients(const std::vector<parallel::ShardedParameter>& parameters,
                         distributed::Group& world) {
  if (world.size() == 1) return;
  for (const auto& p : parameters) {
    if (p.is_sharded || !p.parameter.requires_grad()) continue;
    at::Tensor& grad = p.parameter.mutable_grad();
    if (!grad.defined()) grad = at::zeros_like(p.tensor.local);
    grad = grad.contiguous();
    world.all_reduce(grad, distributed::Reduction::kSum, p.tensor.name).wait();
  }
}

void zero_gradients(const std::vector<parallel::ShardedParameter>& parameters) {
  for (const auto& p : parameters) p.parameter.mutable_grad().reset();
}

std::vector<distributed::ShardedTensor> sharded_tensors(
    const std::vector<parallel::ShardedParameter>& parameters) {
  std::vector<distributed::ShardedTensor> tensors;
  for (const auto& p : parameters) tensors.push_back(p.tensor);
  return tensors;
}

}  // namespace shardloom::trainer
