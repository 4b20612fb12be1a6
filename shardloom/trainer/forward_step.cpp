#include "shardloom/trainer/forward_step.h"

#include <sstream>

#include "shardloom/base/error.h"

namespace shardloom::trainer {

MicroBatch DataIterator::next() {
  if (taken_ == batches_.size()) {
    throw InternalError("forward_step asks for micro batch {} of a step that has {}", taken_ + 1,
                        batches_.size());
  }
  return std::move(batches_[taken_++]);
}

LossReport loss_func(const models::ModelOutput& output) { return {output.loss, {}}; }

ForwardResult model_forward_step(DataIterator& data, models::Model& model) {
  const MicroBatch batch = data.next();
  return {model.compute_loss(batch.tensors, batch.targets), loss_func};
}

ForwardOutcome run_forward_step(const ForwardStep& forward_step,
                                DataIterator& data,
                                models::Model& model) {
  const size_t before = data.taken();
  ForwardResult result = forward_step(data, model);
  if (data.taken() != before + 1) {
    throw InternalError("forward_step took {} micro batches from its data iterator, not one",
                        data.taken() - before);
  }
  if (!result.loss_func) throw InternalError("forward_step returned no loss function");
  LossReport report = result.loss_func(result.output);
  if (!report.loss.defined() || report.loss.numel() != 1) {
    std::ostringstream shape;
    if (report.loss.defined()) shape << " of shape " << report.loss.sizes();
    throw InternalError("loss_func returned {}{}, not a scalar",
                        report.loss.defined() ? "a tensor" : "no loss", shape.str());
  }
  return {std::move(result.output), std::move(report)};
}

}  // namespace shardloom::trainer
