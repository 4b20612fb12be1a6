// The forward part of a training step as a function that a program can replace: Megatron-LM's
// forward_step and loss_func (megatron/training/training.py).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardloom/models/model.h"

namespace shardloom::trainer {

// One micro batch on the model's device. A rank that has no sample gets the model's idle batch,
// whose targets are all -100 and whose weights are 0.
struct MicroBatch {
  models::TensorMap tensors;    // arrays of the data set, whole sequences
  models::LossTargets targets;  // of this rank's part of each sequence; the weights hold the
                                // denominators of the global batch
};

// The micro batches of one step.
class DataIterator {
 public:
  explicit DataIterator(std::vector<MicroBatch> batches) : batches_(std::move(batches)) {}
  // The next one, handed over. Throws InternalError when none is left.
  MicroBatch next();
  size_t taken() const { return taken_; }

 private:
  std::vector<MicroBatch> batches_;
  size_t taken_ = 0;
};

struct LossReport {
  at::Tensor loss;  // scalar, for backward: this rank's part of the loss of the global batch
  // Further fields of the log line: parts whose sum over micro batches and ranks is told. The same
  // names on every rank and each time.
  std::map<std::string, double> logged;
};
using LossFunction = std::function<LossReport(const models::ModelOutput&)>;

struct ForwardResult {
  models::ModelOutput output;
  LossFunction loss_func;
};

// Called once for each micro batch, on every rank; takes exactly one from the iterator.
using ForwardStep = std::function<ForwardResult(DataIterator&, models::Model&)>;

// The model's own loss, and a forward step that takes it.
LossReport loss_func(const models::ModelOutput& output);
ForwardResult model_forward_step(DataIterator& data, models::Model& model);

// One call of `forward_step` and of the loss function that it returns. Throws InternalError when
// they break the rules above.
struct ForwardOutcome {
  models::ModelOutput output;
  LossReport report;
};
ForwardOutcome run_forward_step(const ForwardStep& forward_step,
                                DataIterator& data,
                                models::Model& model);

}  // namespace shardloom::trainer
