// One parameter of a unit: its shard, the whole tensor while it is gathered, and the module members
// that show the one or the other.
//
// The whole tensor is one autograd leaf for ever, over a storage that is freed and refilled: graphs
// that saved it (or a view of it) see the refilled values, and gradients always land on it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "shardloom/distributed/sharded_tensor.h"

namespace shardloom::parallel {

// A member tensor that holds the parameter; tied parameters have several.
struct ParamSite {
  std::string name;  // below the module given to fully_shard
  at::Tensor* tensor;
};

struct ParamPlacement {
  int rank = 0;
  int size = 1;                              // of the shard group
  c10::Device device{c10::DeviceType::CPU};  // where it is gathered
  bool offload = false;                      // the shard stays on the CPU
  bool pin_memory = false;
};

class FsdpParam {
 public:
  // Cuts the tensor at the sites, which then show the shard. Throws ConfigError for a scalar or a
  // non-contiguous tensor.
  FsdpParam(std::vector<ParamSite> sites, const ParamPlacement& placement);

  const std::string& name() const { return sites_[0].name; }
  const std::vector<ParamSite>& sites() const { return sites_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t first_row() const { return rows_.first; }
  bool is_meta() const { return flat_.is_meta(); }
  bool requires_grad() const { return sharded_.requires_grad(); }

  // Padded, the same on all ranks: ceil(rows / size) rows.
  int64_t shard_numel() const { return flat_.numel(); }
  int64_t numel() const { return numel_; }
  at::Tensor flat_shard() const { return flat_; }  // 1-D, padding is zero
  const at::Tensor& sharded() const {
    return sharded_;
  }  // leaf [local rows, ...] over flat_shard()

  void materialize(c10::Device device);
  // Before the first gather: takes over a tensor that the user put at the site meanwhile, and makes
  // the leaf of the whole tensor.
  void prepare(std::optional<at::ScalarType> param_dtype);
  at::ScalarType gather_dtype() const { return gather_dtype_; }

  // With one rank and no change of type the shard is the whole tensor; nothing is ever copied.
  bool is_aliased() const { return is_aliased_; }
  // 1-D [size * shard_numel], gather_dtype; has memory between allocate() and free().
  const at::Tensor& gathered() const { return gathered_; }
  void allocate();
  void free();
  int64_t gathered_bytes() const;
  void show_sharded();
  void show_unsharded();

  // Gradient of the whole tensor, with what was stashed before; undefined when there is none.
  at::Tensor take_gradient();
  // Keeps the gradient for a later take_gradient(), in `dtype` from now on.
  void stash_gradient(at::ScalarType dtype);
  bool has_gradient() const;
  // `grad`: [shard_numel] in the stored type, on the shard's device; added to what is there.
  void add_sharded_gradient(const at::Tensor& grad);

 private:
  void shard(const at::Tensor& whole);
  void adopt(const at::Tensor& local);
  void make_leaf(bool requires_grad);
  at::Tensor new_flat(const at::TensorOptions& options) const;

  std::vector<ParamSite> sites_;
  ParamPlacement placement_;
  std::vector<int64_t> shape_;
  int64_t numel_ = 0;
  int64_t row_numel_ = 0;
  distributed::RowRange rows_;
  int64_t padded_rows_ = 0;

  at::Tensor flat_;
  at::Tensor sharded_;
  at::Tensor gathered_;
  at::Tensor unsharded_;
  at::Tensor stash_;
  at::ScalarType gather_dtype_ = at::kFloat;
  bool is_aliased_ = false;
};

}  // namespace shardloom::parallel
