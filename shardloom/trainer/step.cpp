#include "shardloom/trainer/step.h"

#include "shardloom/features/rng_state.h"
#include "shardloom/parallel/context_parallel.h"
#include "shardloom/trainer/batch_tensors.h"

namespace shardloom::trainer {
namespace {

constexpr const char* kAssignments = "router assignments";

struct Prepared {
  models::TensorMap tensors;
  at::Tensor targets;      // [B, S]
  at::Tensor real_tokens;  // [B, S]
  int64_t tokens = 0;
};

Prepared prepare_idle(const models::Model& model) {
  Prepared p{.tensors = model.idle_batch()};
  p.targets = at::full_like(p.tensors.at("input_ids"), loss::kIgnoreIndex);
  p.real_tokens = at::zeros_like(p.targets);
  return p;
}

Prepared prepare(const models::Model& model, data::Batch&& batch) {
  if (batch.sample_indices.empty()) return prepare_idle(model);
  const int64_t tokens = batch.num_tokens;
  Prepared p{.tensors = to_tensors(std::move(batch)), .tokens = tokens};
  const auto labels = p.tensors.find("labels");
  if (labels == p.tensors.end())
    throw DataError("the data set gives no array \"labels\", which every loss needs");
  p.targets = loss::shift_labels(labels->second);
  const auto mask = p.tensors.find("attention_mask");
  p.real_tokens = mask == p.tensors.end() ? at::ones_like(p.targets) : mask->second;
  return p;
}

// What the model is asked for: the targets of this rank's part of each sequence.
models::LossTargets own_targets(StepTarget& target,
                                const Prepared& p,
                                const at::Tensor& targets,
                                const at::Tensor& weights) {
  const auto own = [&](const at::Tensor& t) {
    return parallel::own_part(t, 1, target.context_parallel);
  };
  return {own(targets), own(weights), own(p.real_tokens)};
}

at::Tensor sum_of_ranks(distributed::Group& group, const at::Tensor& values, const char* label) {
  if (group.size() == 1) return values;
  const at::Tensor sum = values.clone();
  group.all_reduce(sum, distributed::Reduction::kSum, label).wait();
  return sum;
}

// Tokens that each expert is chosen for in the whole global batch, [E], from forward passes without
// targets, which draw the random numbers that the passes after them draw again.
at::Tensor count_assignments(StepTarget& target, const std::vector<Prepared>& prepared) {
  const at::NoGradGuard no_grad;
  const features::RngScope same_draws(features::RngState::of({}));
  at::Tensor sum;
  for (const Prepared& p : prepared) {
    const at::Tensor none = at::full_like(p.targets, loss::kIgnoreIndex);
    const at::Tensor assigned =
        target.model
            .compute_loss(p.tensors, own_targets(target, p, none, at::zeros_like(none, at::kFloat)))
            .router.assigned_E;
    if (assigned.defined()) sum = sum.defined() ? sum + assigned : assigned;
  }
  return sum.defined() ? sum_of_ranks(target.world, sum, kAssignments) : sum;
}

std::vector<MicroBatch> micro_batches_of(StepTarget& target,
                                         std::vector<Prepared>&& prepared,
                                         loss::LossType type,
                                         const loss::TargetCounts& counts) {
  std::vector<MicroBatch> batches;
  for (Prepared& p : prepared) {
    models::LossTargets targets =
        own_targets(target, p, p.targets, loss::token_weights(p.targets, type, counts));
    batches.push_back({std::move(p.tensors), std::move(targets)});
  }
  return batches;
}

// What the micro batches of a step tell, to be summed over ranks.
class LossSums {
 public:
  void add(const LossReport& report) {
    loss_ += report.loss.item<double>();
    for (const auto& [name, value] : report.logged) logged_[name] += value;
  }
  void add_aux(double value) { aux_ = aux_.value_or(0.0) + value; }

  void store(distributed::Group& world, StepResult& result) const {
    std::vector<double> sums = {loss_, aux_.value_or(0.0)};
    for (const auto& [name, value] : logged_) sums.push_back(value);
    sum_over_ranks(world, sums);
    result.loss = sums[0];
    if (aux_) result.aux_loss = sums[1];
    result.logged = logged_;
    size_t i = 2;
    for (auto& [name, value] : result.logged) value = sums[i++];
  }

 private:
  double loss_ = 0;
  std::optional<double> aux_;
  std::map<std::string, double> logged_;
};

// Makes counts, tokens and the wish to stop those of all ranks. Ranks that share samples count them
// once, but each may have been asked to stop.
void agree(const StepTarget& target, StepResult& result) {
  const double share = target.context_parallel.rank() == 0 ? 1.0 : 0.0;
  std::vector<double> values = {share * static_cast<double>(result.counts.tokens),
                                share * static_cast<double>(result.counts.samples),
                                share * static_cast<double>(result.counts.samples_without_targets),
                                share * result.counts.inverse_sqrt_tokens,
                                share * static_cast<double>(result.tokens),
                                result.interrupted ? 1.0 : 0.0};
  sum_over_ranks(target.world, values);
  result.counts.tokens = static_cast<int64_t>(values[0]);
  result.counts.samples = static_cast<int64_t>(values[1]);
  result.counts.samples_without_targets = static_cast<int64_t>(values[2]);
  result.counts.inverse_sqrt_tokens = values[3];
  result.tokens = static_cast<int64_t>(values[4]);
  result.interrupted = values[5] > 0;
}

}  // namespace

void sum_over_ranks(distributed::Group& group, std::vector<double>& values) {
  const at::Tensor own =
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble);
  own.copy_(sum_of_ranks(group, own, "step totals"));
}

StepResult forward_backward(StepTarget& target,
                            std::vector<data::Batch>&& micro_batches,
                            const LossOptions& options,
                            bool interrupted) {
  StepResult result;
  result.interrupted = interrupted;
  std::vector<Prepared> prepared;
  for (data::Batch& batch : micro_batches) {
    for (auto& place : batch.sample_places) result.sample_places.push_back(place);
    const bool is_idle = batch.sample_indices.empty();
    prepared.push_back(prepare(target.model, std::move(batch)));
    if (!is_idle) result.counts += loss::count_targets(prepared.back().targets);
    result.tokens += prepared.back().tokens;
  }
  agree(target, result);

  at::Tensor assigned;
  if (options.router_aux_loss_coef > 0 && prepared.size() > 1 &&
      !target.model.expert_modules().empty())
    assigned = count_assignments(target, prepared);
  std::vector<int64_t> tokens;
  for (const Prepared& p : prepared) tokens.push_back(p.tokens);
  DataIterator data(micro_batches_of(target, std::move(prepared), options.type, result.counts));
  LossSums sums;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_last = i + 1 == tokens.size();
    target.sharded.set_is_last_backward(is_last);
    target.sharded.set_requires_all_reduce(is_last);
    // An idle batch stands for no token.
    if (target.expert_loads != nullptr) target.expert_loads->count(tokens[i] > 0);
    const ForwardOutcome forward = run_forward_step(target.forward_step, data, target.model);
    at::Tensor total = forward.report.loss;
    const ops::RouterSums& router = forward.output.router;
    if (router.probability_E.defined()) {
      if (!assigned.defined())
        assigned = sum_of_ranks(target.world, router.assigned_E, kAssignments);
      const at::Tensor aux =
          ops::load_balancing_loss(router.probability_E, assigned, target.model.facts()->top_k);
      sums.add_aux(aux.item<double>());
      total = total + aux * options.router_aux_loss_coef;
    }
    sums.add(forward.report);
    total.backward();
  }
  if (target.expert_loads != nullptr) target.expert_loads->count(false);
  sums.store(target.world, result);
  return result;
}

double evaluate(StepTarget& target,
                data::Batch&& batch,
                loss::LossType type,
                loss::TargetCounts& counts) {
  const at::NoGradGuard no_grad;
  std::vector<Prepared> prepared;
  prepared.push_back(prepare(target.model, std::move(batch)));
  counts = loss::count_targets(prepared.back().targets);
  DataIterator data(micro_batches_of(target, std::move(prepared), type, counts));
  return run_forward_step(target.forward_step, data, target.model).report.loss.item<double>();
}

}  // namespace shardloom::trainer
