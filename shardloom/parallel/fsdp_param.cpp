#include "shardloom/parallel/fsdp_param.h"

#include <ATen/native/Resize.h>

#include "shardloom/base/error.h"

namespace shardloom::parallel {
namespace {

// Frees (0) or gives back the memory below a tensor and all its views. Contents are lost.
void resize_storage(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() == bytes) return;
  if (storage->device_type() == c10::DeviceType::CPU) {
    at::native::resize_bytes_cpu(storage, bytes);
    return;
  }
  // As resize_bytes_cpu, for any device: memory of the storage's own allocator.
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

}  // namespace

FsdpParam::FsdpParam(std::vector<ParamSite> sites, const ParamPlacement& placement)
    : sites_(std::move(sites)), placement_(placement) {
  const at::Tensor whole = *sites_[0].tensor;
  if (whole.dim() == 0) {
    throw ConfigError("fully_shard: {} is a scalar; make it a 1-D tensor of one element", name());
  }
  if (!whole.is_contiguous()) {
    throw ConfigError("fully_shard: {} is not contiguous; make it so before", name());
  }
  shape_ = whole.sizes().vec();
  numel_ = whole.numel();
  row_numel_ = 1;
  for (size_t d = 1; d < shape_.size(); ++d) row_numel_ *= shape_[d];
  rows_ = distributed::shard_rows(shape_[0], placement_.rank, placement_.size);
  padded_rows_ = distributed::shard_rows(shape_[0], 0, placement_.size).count;
  shard(whole);
}

at::Tensor FsdpParam::new_flat(const at::TensorOptions& options) const {
  const bool meta = options.device().is_meta();
  const c10::Device device = meta                 ? options.device()
                             : placement_.offload ? c10::Device(c10::kCPU)
                                                  : placement_.device;
  at::TensorOptions target = options.device(device).requires_grad(false);
  if (!meta && placement_.offload && placement_.pin_memory && placement_.device != device)
    target = target.pinned_memory(true);
  at::Tensor flat = at::empty({padded_rows_ * row_numel_}, target);
  const int64_t used = rows_.count * row_numel_;
  if (!meta) flat.narrow(0, used, flat.numel() - used).zero_();
  return flat;
}

void FsdpParam::make_leaf(bool requires_grad) {
  std::vector<int64_t> local = shape_;
  local[0] = rows_.count;
  sharded_ = flat_.narrow(0, 0, rows_.count * row_numel_).view(local).variable_data();
  sharded_.set_requires_grad(requires_grad);
  show_sharded();
}

void FsdpParam::shard(const at::Tensor& whole) {
  const at::NoGradGuard no_grad;
  flat_ = new_flat(whole.options());
  if (!whole.is_meta()) {
    flat_.narrow(0, 0, rows_.count * row_numel_)
        .copy_(whole.detach().narrow(0, rows_.first, rows_.count).reshape({-1}));
  }
  make_leaf(whole.requires_grad());
}

void FsdpParam::adopt(const at::Tensor& local) {
  if (local.sizes() != sharded_.sizes()) {
    throw ConfigError(
        "fully_shard: {} was replaced by a tensor of another shape before the first forward",
        name());
  }
  const at::NoGradGuard no_grad;
  flat_ = new_flat(local.options());
  if (!local.is_meta()) flat_.narrow(0, 0, local.numel()).copy_(local.detach().reshape({-1}));
  make_leaf(local.requires_grad());
}

void FsdpParam::materialize(c10::Device device) {
  if (!is_meta()) return;
  const at::NoGradGuard no_grad;
  flat_ = new_flat(flat_.options().device(device));
  make_leaf(sharded_.requires_grad());
}

void FsdpParam::prepare(std::optional<at::ScalarType> param_dtype) {
  const at::NoGradGuard no_grad;
  if (!sites_[0].tensor->is_same(sharded_)) adopt(*sites_[0].tensor);
  const bool is_floating = at::isFloatingType(flat_.scalar_type());
  gather_dtype_ = is_floating ? param_dtype.value_or(flat_.scalar_type()) : flat_.scalar_type();
  is_aliased_ = placement_.size == 1 && gather_dtype_ == flat_.scalar_type() &&
                flat_.device() == placement_.device;
  if (is_aliased_) {
    gathered_ = flat_;
  } else {
    gathered_ = at::empty(
        {placement_.size * shard_numel()},
        flat_.options().device(placement_.device).dtype(gather_dtype_).pinned_memory(false));
  }
  // variable_data(): a version counter of its own, which refilling does not move.
  unsharded_ = gathered_.narrow(0, 0, numel_).view(shape_).variable_data();
  free();
}

void FsdpParam::allocate() {
  if (!is_aliased_) resize_storage(gathered_, gathered_bytes());
}

void FsdpParam::free() {
  if (!is_aliased_) resize_storage(gathered_, 0);
}

int64_t FsdpParam::gathered_bytes() const {
  return gathered_.numel() * static_cast<int64_t>(c10::elementSize(gather_dtype_));
}

void FsdpParam::show_sharded() {
  for (const ParamSite& site : sites_) *site.tensor = sharded_;
}

void FsdpParam::show_unsharded() {
  if (unsharded_.requires_grad() != sharded_.requires_grad())
    unsharded_.set_requires_grad(sharded_.requires_grad());
  for (const ParamSite& site : sites_) *site.tensor = unsharded_;
}

bool FsdpParam::has_gradient() const {
  return stash_.defined() || (unsharded_.defined() && unsharded_.grad().defined());
}

at::Tensor FsdpParam::take_gradient() {
  at::Tensor grad = unsharded_.grad();
  unsharded_.mutable_grad().reset();
  if (!stash_.defined()) return grad;
  at::Tensor sum = std::move(stash_);
  stash_.reset();
  return grad.defined() ? sum.add_(grad) : sum;
}

void FsdpParam::stash_gradient(at::ScalarType dtype) {
  at::Tensor grad = take_gradient();
  if (grad.defined()) stash_ = grad.to(dtype);
}

void FsdpParam::add_sharded_gradient(const at::Tensor& grad) {
  const at::Tensor local = grad.narrow(0, 0, sharded_.numel()).view(sharded_.sizes());
  at::Tensor& present = sharded_.mutable_grad();
  if (present.defined()) {
    present.add_(local);
  } else {
    present = local;
  }
}

}  // namespace shardloom::parallel
