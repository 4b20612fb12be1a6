// What the units of one model have in common: who is root, in which order they ran, what backward
// has still to do.
#pragma once

#include <memory>
#include <vector>

#include "shardloom/parallel/fsdp_state.h"

namespace shardloom::parallel {

class FsdpRoot : public std::enable_shared_from_this<FsdpRoot> {
 public:
  // Makes `root` the root of all states below its module. Throws ConfigError when one of them ran
  // forward by itself before, or `root` has several modules.
  static void establish(FsdpState& root);

  bool is_root(const FsdpState& state) const { return &state == states_[0]; }
  const std::vector<FsdpState*>& states() const { return states_; }
  const std::shared_ptr<FsdpContext>& context() const { return context_; }

  // Before any forward: clears what a backward that threw has left.
  void recover();
  void begin_forward();
  // All but the root itself has run.
  void end_forward();
  bool is_in_forward() const { return is_in_forward_; }
  void abandon_forward();
  // Units that other ranks run before `state`, but this rank has skipped, take part.
  void run_skipped_before(FsdpState& state);
  void record_forward(FsdpState& state);
  // True when ranks that run this unit of the order may get gradients for its outputs.
  bool expects_gradients(const FsdpState& state) const;
  const std::vector<std::string>& first_run_order() const { return first_run_order_; }

  // A forward of `state` now runs again what a backward needs, which is at the unit or has not come
  // to it yet. (Of a reentrant recomputation it is the only one that counts, and the first one left
  // no entry.)
  bool is_recomputing(const FsdpState& state) const;
  // Before the gather of `state` for backward: units that should have come first take part.
  void begin_backward_of(FsdpState& state);
  void prefetch_after(FsdpState& state);

 private:
  bool is_last_backward() const { return states_[0]->is_last_backward; }
  const std::vector<FsdpState*>& unit_order() const { return states_[0]->unit_order; }

  struct ForwardEntry {
    FsdpState* state;
    bool reached = false;  // by backward
  };

  bool is_in_unit_order(const FsdpState& state) const;
  bool has_unreached(const FsdpState& state, size_t end) const;
  void catch_up_backward(size_t first, const FsdpState* reached);
  void finish_backward();
  void reset();

  std::vector<FsdpState*> states_;  // the root first
  std::vector<nn::NamedTensor> parameters_;
  std::shared_ptr<FsdpContext> context_ = std::make_shared<FsdpContext>();
  std::vector<ForwardEntry> forward_order_;  // with multiplicity
  size_t next_in_order_ = 0;
  std::vector<std::string> first_run_order_;
  bool is_first_run_over_ = false;
  bool is_in_forward_ = false;
  bool is_callback_queued_ = false;
  size_t last_reached_ = 0;
};

}  // namespace shardloom::parallel
