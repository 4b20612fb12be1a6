#include "shardloom/trainer/step.h"

#include "shardloom/trainer/batch_tensors.h"

namespace shardloom::trainer {
namespace {

struct Prepared {
  models::TensorMap tensors;
  at::Tensor targets;
  int64_t tokens;
};

Prepared prepare(data::Batch&& batch) {
  const int64_t tokens = batch.num_tokens;
  Prepared p{to_tensors(std::move(batch)), {}, tokens};
  const auto labels = p.tensors.find("labels");
  if (labels == p.tensors.end())
    throw DataError("the data set gives no array \"labels\", which every loss needs");
  p.targets = loss::shift_labels(labels->second);
  return p;
}

}  // namespace

StepResult forward_backward(models::Model& model,
                            MasterWeights& weights,
                            std::vector<data::Batch>&& micro_batches,
                            const LossOptions& options) {
  StepResult result;
  std::vector<Prepared> prepared;
  for (data::Batch& batch : micro_batches) {
    for (auto& place : batch.sample_places) result.sample_places.push_back(place);
    if (batch.sample_indices.empty()) continue;
    prepared.push_back(prepare(std::move(batch)));
    result.counts += loss::count_targets(prepared.back().targets);
    result.tokens += prepared.back().tokens;
  }
  for (Prepared& p : prepared) {
    const models::ModelOutput out = model.compute_loss(
        p.tensors, {p.targets, loss::token_weights(p.targets, options.type, result.counts)});
    at::Tensor total = out.loss;
    if (out.aux_loss.defined()) {
      const double share = result.tokens > 0
                               ? static_cast<double>(p.tokens) / static_cast<double>(result.tokens)
                               : 0.0;
      result.aux_loss = result.aux_loss.value_or(0.0) + share * out.aux_loss.item<double>();
      total = total + out.aux_loss * (share * options.router_aux_loss_coef);
    }
    result.loss += out.loss.item<double>();
    total.backward();
    weights.collect_gradients();
  }
  return result;
}

double evaluate(models::Model& model,
                data::Batch&& batch,
                loss::LossType type,
                loss::TargetCounts& counts) {
  const at::NoGradGuard no_grad;
  const Prepared p = prepare(std::move(batch));
  counts = loss::count_targets(p.targets);
  return model.compute_loss(p.tensors, {p.targets, loss::token_weights(p.targets, type, counts)})
      .loss.item<double>();
}

}  // namespace shardloom::trainer
