#include "shardloom/parallel/fsdp_param_group.h"

#include <algorithm>
#include <cstdlib>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"

namespace shardloom::parallel {
namespace {

bool log_is_on() {
  static const bool on = [] {
    const char* value = std::getenv("SHARDLOOM_LOG_COMM");
    return value != nullptr && std::string_view(value) != "0" && *value != '\0';
  }();
  return on;
}

// The groups of an int reshard_after_forward; the units of a world share them.
class PostForwardGroups {
 public:
  static PostForwardGroups& instance() {
    static PostForwardGroups groups;
    return groups;
  }

  std::shared_ptr<distributed::Group> of(const std::shared_ptr<distributed::World>& world,
                                         const std::vector<int>& ranks) {
    std::erase_if(made_, [](const Entry& entry) { return entry.world.expired(); });
    int before = 0;
    for (const Entry& entry : made_) {
      if (entry.world.lock() != world || entry.ranks != ranks) continue;
      if (auto group = entry.group.lock()) return group;
      ++before;
    }
    // Names of groups that are gone stay taken.
    auto group = world->make_group(fmt::format("post_forward_{}", before), ranks);
    made_.push_back({world, ranks, group});
    return group;
  }

 private:
  struct Entry {
    std::weak_ptr<distributed::World> world;
    std::vector<int> ranks;
    std::weak_ptr<distributed::Group> group;
  };
  std::vector<Entry> made_;
};

std::shared_ptr<distributed::Group> replicas(const distributed::DeviceMesh& mesh) {
  return mesh.num_axes() == 2 ? mesh.axis(0).group : nullptr;
}

}  // namespace

void FsdpContext::report(UnitAction action, const std::string& unit, int64_t numel) const {
  if (listener) listener({action, unit, numel});
  if (log_is_on()) log::write("comm", fmt::format("{} {} {}", action_name(action), unit, numel));
}

ParamGroup::ParamGroup(ParamList params,
                       std::shared_ptr<const distributed::DeviceMesh> mesh,
                       const FullyShardOptions& options)
    : reducer(
          mesh->axis(mesh->num_axes() - 1).group, replicas(*mesh), options.mp_policy.reduce_dtype),
      params_(std::move(params)),
      mesh_(std::move(mesh)),
      shard_group_(mesh_->axis(mesh_->num_axes() - 1).group),
      param_dtype_(options.mp_policy.param_dtype) {
  const auto& asked = options.reshard_after_forward;
  is_reshard_automatic = std::holds_alternative<std::monostate>(asked);
  if (const bool* on = std::get_if<bool>(&asked)) reshard_after_forward = *on;
  if (const int* size = std::get_if<int>(&asked)) make_post_forward_group(options, *size);
  reducer.on_all_reduce = [this](int64_t numel) {
    context_->report(UnitAction::kAllReduce, unit_name_, numel);
  };
}

void ParamGroup::make_post_forward_group(const FullyShardOptions& options, int size) {
  const int shards = shard_group_->size();
  if (size < 1 || shards % size != 0) {
    throw ConfigError(
        "fully_shard: reshard_after_forward is {}, which does not divide the shard size {}", size,
        shards);
  }
  if (size == 1) {
    log::warn("fully_shard: reshard_after_forward 1 keeps the parameters gathered, as false does");
    reshard_after_forward = false;
  }
  if (size == 1 || size == shards) return;
  if (options.world == nullptr) {
    throw ConfigError("fully_shard: reshard_after_forward {} needs FullyShardOptions::world", size);
  }
  const int first = shard_group_->rank() / size * size;
  const auto& ranks = shard_group_->ranks();
  post_forward_group_ = PostForwardGroups::instance().of(
      options.world, std::vector<int>(ranks.begin() + first, ranks.begin() + first + size));
  keeps_slices_ = true;
}

void ParamGroup::set_reshard_after_forward(bool reshard) {
  reshard_after_forward = reshard;
  is_reshard_automatic = false;
  keeps_slices_ = false;
}

void ParamGroup::set_unit_name(const std::string& name) {
  unit_name_ = name;
  label_ = "unit " + name;
}

bool ParamGroup::has_trained_parameters() const {
  return std::any_of(params_.begin(), params_.end(),
                     [](const auto& param) { return param->requires_grad(); });
}

GroupBytes ParamGroup::bytes() const {
  GroupBytes sum;
  for (const auto& param : params_) {
    const at::Tensor shard = param->flat_shard();
    const at::ScalarType stored = shard.scalar_type();
    const at::ScalarType gathered =
        at::isFloatingType(stored) ? param_dtype_.value_or(stored) : stored;
    const int64_t whole = shard.numel() * shard_group_->size();
    sum.shard += shard.numel() * static_cast<int64_t>(c10::elementSize(stored));
    sum.gathered += whole * static_cast<int64_t>(c10::elementSize(gathered));
    if (param->requires_grad()) {
      sum.reduce +=
          whole * static_cast<int64_t>(c10::elementSize(reducer.reduce_dtype().value_or(gathered)));
    }
  }
  return sum;
}

void ParamGroup::prepare() {
  if (is_prepared_) return;
  std::vector<std::string> meta;
  for (const auto& param : params_) {
    if (param->sites()[0].tensor->is_meta()) meta.push_back(param->name());
  }
  if (!meta.empty()) {
    throw ConfigError(
        "fully_shard: these parameters are on the meta device; materialize() them before training: "
        "{}",
        join(meta, ", "));
  }
  for (const auto& param : params_) param->prepare(param_dtype_);
  is_prepared_ = true;
}

distributed::Group& ParamGroup::gather_group() const {
  return residence_ == Residence::kShardedPostForward ? *post_forward_group_ : *shard_group_;
}

at::Tensor ParamGroup::own_part(size_t index) const {
  return residence_ == Residence::kShardedPostForward ? slices_[index]
                                                      : params_[index]->flat_shard();
}

void ParamGroup::unshard() {
  if (residence_ == Residence::kUnsharded || is_gathering_) return;
  prepare();
  is_gathering_ = true;
  if (gather_group().size() > 1) issue_gather();
}

void ParamGroup::issue_gather() {
  const at::NoGradGuard no_grad;
  const int64_t sent = all_gather.is_default() ? gather_in_place() : gather_over_wire();
  context_->report(UnitAction::kAllGather, unit_name_, sent);
}

// Each shard goes straight to its place in the whole parameter.
int64_t ParamGroup::gather_in_place() {
  std::vector<at::Tensor> outputs, inputs;
  int64_t sent = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    params_[i]->allocate();
    outputs.push_back(params_[i]->gathered());
    inputs.push_back(own_part(i).to(outputs[i].options(), /*non_blocking=*/true));
    sent += inputs[i].numel();
  }
  gather_ = gather_group().all_gather(std::move(outputs), std::move(inputs), label_);
  return sent;
}

// Through one buffer, which is what custom collectives and allocators see.
int64_t ParamGroup::gather_over_wire() {
  const int64_t ranks = gather_group().size();
  const bool mixed = std::any_of(params_.begin(), params_.end(), [&](const auto& param) {
    return param->gather_dtype() != params_[0]->gather_dtype();
  });
  // Parameters of several types travel as bytes.
  const at::ScalarType dtype = mixed ? at::kByte : params_[0]->gather_dtype();
  int64_t width = 0;
  for (const auto& param : params_)
    width += (mixed ? param->gathered_bytes() : param->gathered().numel()) / ranks;
  wire_ = all_gather.allocate(gather_group(), {ranks, width},
                              params_[0]->gathered().options().dtype(dtype));
  const at::Tensor own = wire_.select(0, gather_group().rank());
  int64_t offset = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    at::Tensor part = own_part(i);
    if (mixed) part = part.to(params_[i]->gather_dtype()).view(at::kByte);
    own.narrow(0, offset, part.numel()).copy_(part, /*non_blocking=*/true);
    offset += part.numel();
  }
  gather_ = all_gather.custom != nullptr
                ? all_gather.custom->call(wire_.view({-1}), own, gather_group(), label_)
                : gather_group().all_gather(wire_.view({-1}), own, label_);
  return own.numel();
}

void ParamGroup::copy_out_of_wire() {
  if (!wire_.defined()) return;
  int64_t offset = 0;
  for (const auto& param : params_) {
    param->allocate();
    const int64_t ranks = wire_.size(0);
    at::Tensor rows = param->gathered().view({ranks, param->gathered().numel() / ranks});
    if (wire_.scalar_type() != rows.scalar_type()) rows = rows.view(wire_.scalar_type());
    rows.copy_(wire_.narrow(1, offset, rows.size(1)));
    offset += rows.size(1);
  }
  wire_.reset();
}

void ParamGroup::wait_for_unshard() {
  if (residence_ == Residence::kUnsharded) {
    // requires_grad may have changed since.
    for (const auto& param : params_) param->show_unsharded();
    return;
  }
  unshard();
  const at::NoGradGuard no_grad;
  if (gather_group().size() > 1) {
    gather_.wait();
    gather_ = {};
    copy_out_of_wire();
  } else {
    for (const auto& param : params_) {
      param->allocate();
      if (!param->is_aliased()) param->gathered().copy_(param->flat_shard());
    }
  }
  slices_.clear();
  for (const auto& param : params_) param->show_unsharded();
  is_gathering_ = false;
  residence_ = Residence::kUnsharded;
}

void ParamGroup::reshard() {
  if (is_gathering_) {
    gather_.wait();
    gather_ = {};
    wire_.reset();
    is_gathering_ = false;
    for (const auto& param : params_) param->free();
  }
  if (residence_ == Residence::kUnsharded) {
    for (const auto& param : params_) {
      param->show_sharded();
      param->free();
    }
    context_->report(UnitAction::kReshard, unit_name_, 0);
  }
  slices_.clear();
  residence_ = Residence::kSharded;
}

void ParamGroup::keep_slices() {
  const at::NoGradGuard no_grad;
  const int64_t parts = post_forward_group_->size();
  std::vector<at::Tensor> slices;
  for (const auto& param : params_) {
    const at::Tensor whole = param->gathered();
    slices.push_back(whole.view({parts, -1}).select(0, post_forward_group_->rank()).clone());
  }
  reshard();
  slices_ = std::move(slices);
  residence_ = Residence::kShardedPostForward;
}

void ParamGroup::reshard_after_forward_if_asked(bool backward_comes) {
  if (!reshard_after_forward) return;
  if (keeps_slices_ && backward_comes) {
    keep_slices();
  } else {
    reshard();
  }
}

void ParamGroup::reduce_gradients(bool fill) {
  const at::NoGradGuard no_grad;
  if (!reduce_grads) {
    for (const auto& param : params_) {
      if (param->has_gradient()) param->stash_gradient(reducer.accumulation_dtype(*param));
    }
    if (reshard_after_backward) reshard();
    return;
  }
  const bool any = std::any_of(params_.begin(), params_.end(),
                               [](const auto& param) { return param->has_gradient(); });
  if (reshard_after_backward) reshard();
  if (!any && !fill) return;
  awaits_gradients = false;
  if (context_->reducing != nullptr) context_->reducing->finish_reduction();
  const int64_t sent = reducer.start(params_, label_);
  if (sent > 0) context_->report(UnitAction::kReduceScatter, unit_name_, sent);
  if (reducer.is_open()) context_->reducing = this;
}

void ParamGroup::finish_reduction() {
  const at::NoGradGuard no_grad;
  reducer.finish();
  if (context_->reducing == this) context_->reducing = nullptr;
}

void ParamGroup::reset() {
  reducer.drop();
  if (context_->reducing == this) context_->reducing = nullptr;
  if (is_gathering_) {
    try {
      gather_.wait();
    } catch (const std::exception&) {
      // As in GradientReducer::drop().
    }
    gather_ = {};
  }
  reshard();
  for (const auto& param : params_) {
    if (param->has_gradient()) param->take_gradient();
  }
  awaits_gradients = false;
}

}  // namespace shardloom::parallel
