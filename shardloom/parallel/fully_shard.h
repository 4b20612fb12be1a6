// fully_shard: fully sharded data parallelism for any nn::Module, with the semantics of PyTorch
// 2.11 (torch.distributed.fsdp.fully_shard; ZeRO-3, Rajbhandari et al. 2020).
//
// Each call makes one unit: the parameters below the module that no earlier call took. They are cut
// along dim 0 over the mesh, gathered before the unit's forward and backward, freed after them, and
// their gradients are reduced to the shards. So children come before their parents, and the root
// last:
//
//   for (auto& layer : net.layers) parallel::fully_shard(*layer, mesh);
//   parallel::fully_shard(net, mesh);
//   AdamW over parallel::sharded_parameters(net);  loss(net(x)).backward();
//
// Modules are called through operator(), never .forward(). Differences from PyTorch, on purpose:
// parameters of a unit that ran but got no gradient take part with zeros; a parameter tied across
// units is refused by name; inputs are cast in recomputation too; after an exception the next
// forward starts clean (docs/conformance.md has them all).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "shardloom/distributed/device_mesh.h"
#include "shardloom/distributed/sharded_tensor.h"
#include "shardloom/nn/module.h"
#include "shardloom/parallel/comm.h"
#include "shardloom/parallel/unit_event.h"

namespace shardloom::parallel {

// Types at the cast points; nullopt leaves the type as it is. Parameters are gathered in
// param_dtype (the shard keeps its own type), gradients reduced in reduce_dtype (else in the type
// they come in) and stored in the shard's type.
struct MixedPrecisionPolicy {
  std::optional<at::ScalarType> param_dtype;
  std::optional<at::ScalarType> reduce_dtype;
  std::optional<at::ScalarType> output_dtype;  // of the module's floating outputs
  bool cast_forward_inputs = true;             // floating inputs -> param_dtype
};

// Shards, their gradients and so the optimizer live on the CPU; pinned where the mesh's device is
// another one.
struct OffloadPolicy {
  bool cpu = false;
  bool pin_memory = true;
};

// none: true, but the root's parameters stay gathered. true: freed after forward. false: kept until
// backward is done. k: a 1/k shard is kept and backward gathers over k consecutive ranks only.
using ReshardAfterForward = std::variant<std::monostate, bool, int>;

struct FullyShardOptions {
  std::string name;  // of the module, for messages
  ReshardAfterForward reshard_after_forward;
  MixedPrecisionPolicy mp_policy;
  OffloadPolicy offload_policy;
  // Members that stay whole, in place and unreduced.
  std::vector<const at::Tensor*> ignored_params;
  // Gathers and frees around this module's calls instead of those of the sharded one.
  nn::Module* hook_module = nullptr;
  // Makes the groups for an int reshard_after_forward.
  std::shared_ptr<distributed::World> world;
};

class FsdpState;

// Waits for an asynchronous unshard(); forward does so by itself.
class UnshardHandle {
 public:
  explicit UnshardHandle(FsdpState* state) : state_(state) {}
  void wait();

 private:
  FsdpState* state_;  // null: nothing under way
};

// A sharded module's controls, by PyTorch's names. A light handle; the state belongs to the module.
// (R): also for all sharded modules below, unless `recurse` is false.
class FsdpModule {
 public:
  // Throws ConfigError for a module that was not given to fully_shard.
  static FsdpModule of(nn::Module& module);
  static bool is_sharded(const nn::Module& module);

  // This module's own parameters; not recursive.
  void reshard();
  UnshardHandle unshard(bool async_op = false);

  void set_is_last_backward(bool is_last);
  void set_requires_gradient_sync(bool requires_sync, bool recurse = true);           // (R)
  void set_requires_all_reduce(bool requires_all_reduce, bool recurse = true);        // (R) HSDP
  void set_reshard_after_forward(bool reshard_after_forward, bool recurse = true);    // (R)
  void set_reshard_after_backward(bool reshard_after_backward, bool recurse = true);  // (R)
  void set_modules_to_forward_prefetch(const std::vector<nn::Module*>& modules);
  void set_modules_to_backward_prefetch(const std::vector<nn::Module*>& modules);
  // Gradients are summed and divided by this instead of the mesh's size; 1 for losses that are
  // normalised over the global batch.
  void set_gradient_divide_factor(double factor);
  void set_force_sum_reduction_for_comms(bool enable);
  void set_unshard_in_backward(bool unshard_in_backward);
  // Runs on the reduced shard of each unit's gradients, before they are stored.
  void set_all_reduce_hook(std::function<void(const at::Tensor&)> hook);
  // This unit's collectives; null gives the mesh's own back. HSDP's all-reduce is not among them.
  void set_custom_all_gather(std::shared_ptr<AllGather> comm);
  void set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm);
  // Staging memory of this unit from the backend's allocator where it has one. Throws ConfigError
  // when a custom collective is set, which allocates by itself.
  void set_allocate_memory_from_process_group_for_comm(bool enable);
  // Runs once, before the first gather of the next forward of the root: the wait for an optimizer
  // that is still at work elsewhere (another thread, a device stream). On the root.
  void set_post_optim_event(std::function<void()> wait);
  // The units in the order in which forward runs them, on the root. A unit that a rank's forward
  // skips then still takes part, with zeros, so that other ranks may use it. A unit of the order is
  // reduced before backward goes on to the next, also when its inputs need no gradient. A frozen
  // one takes part in backward when a trained parameter is registered before it.
  void set_unit_order(const std::vector<nn::Module*>& modules);
  // Sees every event of this root; null ends it.
  void set_event_listener(UnitListener listener);

  std::string unit_name() const;
  // Names of the units below this root in the order in which the first forward reached them.
  std::vector<std::string> first_run_order() const;

 private:
  friend FsdpModule fully_shard(const std::vector<nn::Module*>&,
                                std::shared_ptr<const distributed::DeviceMesh>,
                                const FullyShardOptions&);
  explicit FsdpModule(std::shared_ptr<FsdpState> state) : state_(std::move(state)) {}
  std::shared_ptr<FsdpState> state_;
};

// Throws ConfigError: a container without forward, a module given twice, a mesh that is not 1-D
// (shard) or 2-D (replicate, shard), a scalar or non-contiguous parameter, a parameter tied to one
// of another unit or taken by a parent before, an int reshard_after_forward that does not divide
// the shard size.
FsdpModule fully_shard(nn::Module& module,
                       std::shared_ptr<const distributed::DeviceMesh> mesh,
                       const FullyShardOptions& options = {});
// One unit of several modules, gathered before the first of them runs and freed after the last.
FsdpModule fully_shard(const std::vector<nn::Module*>& modules,
                       std::shared_ptr<const distributed::DeviceMesh> mesh,
                       const FullyShardOptions& options = {});

// A parameter as optimizers and checkpoints see it, whatever the unit's state.
struct ShardedParameter {
  distributed::ShardedTensor tensor;  // the local rows, in the stored type
  at::Tensor parameter;               // leaf over tensor.local; holds grad and requires_grad
  bool is_sharded = true;             // false: no unit took it (ignored)
  std::shared_ptr<const distributed::DeviceMesh> mesh;  // null when not sharded
};

// All parameters below `root` in the order of named_parameters(), each tied one once.
std::vector<ShardedParameter> sharded_parameters(nn::Module& root);

// Gives storage to parameters and buffers that are on the meta device (torch's to_empty); values
// are undefined but for the padding, which is zero.
void materialize(nn::Module& root, c10::Device device);

}  // namespace shardloom::parallel
