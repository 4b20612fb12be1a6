// The parameters of one unit as a whole: gathered by one all-gather, reduced by one reduce-scatter.
//
// Each parameter is gathered into its own place and reduced from it. Custom collectives (comm.h)
// see one buffer, the wire, rank-major: [shard size, sum of padded shards]; row r holds the shards
// of rank r one after the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/parallel/comm.h"
#include "shardloom/parallel/fsdp_param.h"
#include "shardloom/parallel/fsdp_reduce.h"
#include "shardloom/parallel/fully_shard.h"

namespace shardloom::parallel {

class ParamGroup;

// Sizes of a unit on one rank, padding included.
struct GroupBytes {
  int64_t gathered = 0;
  int64_t shard = 0;
  int64_t reduce = 0;  // input of the reduction: the trained parameters
};

// What the groups of one root share.
struct FsdpContext {
  ParamGroup* reducing = nullptr;  // whose reduction is under way; at most one at a time
  UnitListener listener;

  void report(UnitAction action, const std::string& unit, int64_t numel) const;
};

class ParamGroup {
 public:
  ParamGroup(ParamList params,
             std::shared_ptr<const distributed::DeviceMesh> mesh,
             const FullyShardOptions& options);

  // Before the first gather; throws ConfigError naming parameters that are on the meta device.
  void prepare();
  void set_context(std::shared_ptr<FsdpContext> context) { context_ = std::move(context); }
  void set_unit_name(const std::string& name);
  const std::string& unit_name() const { return unit_name_; }
  const ParamList& params() const { return params_; }
  const std::shared_ptr<const distributed::DeviceMesh>& mesh() const { return mesh_; }
  bool has_trained_parameters() const;
  // Known before prepare(), on the meta device as well.
  GroupBytes bytes() const;

  // Issues the all-gather unless it is under way or done.
  void unshard();
  void wait_for_unshard();
  // Frees the whole parameters, or drops a gather that nobody waited for.
  void reshard();
  // By reshard_after_forward; a 1/k shard is kept only when backward will come.
  void reshard_after_forward_if_asked(bool backward_comes);

  // After the unit's backward: frees, and reduces or keeps the gradients. `fill`: reduce zeros even
  // when no parameter has a gradient.
  void reduce_gradients(bool fill);
  void finish_reduction();
  // After an exception: sharded, nothing under way, no gradient of whole parameters left.
  void reset();

  // From now on; replaces an int and the root's rule.
  void set_reshard_after_forward(bool reshard);

  bool reshard_after_forward = true;
  bool is_reshard_automatic = false;
  bool reshard_after_backward = true;
  bool unshard_in_backward = true;
  bool reduce_grads = true;
  // Ran a forward whose gradients have not been reduced yet.
  bool awaits_gradients = false;
  CommChoice<AllGather> all_gather;
  GradientReducer reducer;

 private:
  enum class Residence { kSharded, kShardedPostForward, kUnsharded };

  void make_post_forward_group(const FullyShardOptions& options, int size);
  distributed::Group& gather_group() const;
  at::Tensor own_part(size_t index) const;
  void issue_gather();
  // Both return the elements sent.
  int64_t gather_in_place();
  int64_t gather_over_wire();
  void copy_out_of_wire();
  void keep_slices();

  ParamList params_;
  std::shared_ptr<const distributed::DeviceMesh> mesh_;
  std::shared_ptr<distributed::Group> shard_group_;
  std::shared_ptr<distributed::Group> post_forward_group_;  // of an int reshard_after_forward
  std::optional<at::ScalarType> param_dtype_;
  std::shared_ptr<FsdpContext> context_ = std::make_shared<FsdpContext>();
  std::string unit_name_;
  std::string label_;

  Residence residence_ = Residence::kSharded;
  bool is_prepared_ = false;
  bool keeps_slices_ = false;  // 1/k after forward
  bool is_gathering_ = false;
  at::Tensor wire_;  // [ranks, own part] while a gather over it is under way
  distributed::Pending gather_;
  std::vector<at::Tensor> slices_;  // 1/k of each parameter, kept after forward
};

}  // namespace shardloom::parallel
