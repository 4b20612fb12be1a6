// Gradients of one unit from whole tensors to shards: cast, reduce-scatter over the shard group,
// all-reduce over the replicas, divide, cast to the stored type, add to the shards' gradients.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/parallel/comm.h"
#include "shardloom/parallel/fsdp_param.h"

namespace shardloom::parallel {

using ParamList = std::vector<std::unique_ptr<FsdpParam>>;

class GradientReducer {
 public:
  GradientReducer(std::shared_ptr<distributed::Group> shard,
                  std::shared_ptr<distributed::Group> replicate,
                  std::optional<at::ScalarType> reduce_dtype)
      : shard_(std::move(shard)), replicate_(std::move(replicate)), reduce_dtype_(reduce_dtype) {}

  // Takes the gradients of all parameters that require one (a missing one is zeros) and starts the
  // reduction. Returns the elements sent, 0 when nothing had to be. finish() comes before the next
  // start().
  int64_t start(const ParamList& params, const std::string& label);
  // Waits, exchanges with the replicas, and adds the result to the shards' gradients.
  void finish();
  void drop();
  bool is_open() const { return output_.defined(); }

  const std::optional<at::ScalarType>& reduce_dtype() const { return reduce_dtype_; }
  // Type in which gradients are added up between micro batches.
  at::ScalarType accumulation_dtype(const FsdpParam& param) const {
    return reduce_dtype_.value_or(param.gather_dtype());
  }

  CommChoice<ReduceScatter> reduce_scatter;
  bool all_reduce_grads = true;
  bool force_sum = false;
  std::optional<double> divide_factor;
  std::function<void(const at::Tensor&)> hook;  // on the reduced shard, before it is stored
  std::function<void(int64_t)> on_all_reduce;   // told the elements that are all-reduced

 private:
  at::ScalarType wire_dtype(const std::vector<FsdpParam*>& params) const;
  // Padded whole gradients, flat; a gradient that needs no padding and no cast is not copied.
  std::vector<at::Tensor> take_whole(const std::vector<FsdpParam*>& params,
                                     at::ScalarType dtype) const;
  // All in one: [shard size, sum of padded shards]; takes the gradients one by one.
  at::Tensor pack(const std::vector<FsdpParam*>& params, at::ScalarType dtype) const;
  void move_locally(const std::vector<FsdpParam*>& params, at::ScalarType dtype);
  int64_t total_ranks() const;
  // Division before the sum that keeps fp16 in range, and what remains for after it.
  double pre_divisor(at::ScalarType dtype) const;

  std::shared_ptr<distributed::Group> shard_;
  std::shared_ptr<distributed::Group> replicate_;  // null without replicas
  std::optional<at::ScalarType> reduce_dtype_;

  distributed::Pending pending_;
  // Of the reduction under way, as they were when it started.
  std::vector<FsdpParam*> reduced_;
  bool all_reduces_ = true;
  at::Tensor output_;   // [sum of padded shards of the trained parameters]
  at::Tensor partial_;  // sum of outputs that replicas have not exchanged yet
  distributed::Reduction op_ = distributed::Reduction::kSum;
  double post_divisor_ = 1.0;
  std::string label_;
};

}  // namespace shardloom::parallel
