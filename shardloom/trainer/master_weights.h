// fp32 weights and gradients of one process, whatever type the model computes in.
//
// With a compute type (param_dtype bf16) the model's tensors become rounded copies; gradients of
// every micro batch are added up in fp32. Without one the model's own tensors are the fp32 weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardloom/nn/module.h"
#include "shardloom/optim/adamw.h"

namespace shardloom::trainer {

class MasterWeights {
 public:
  // The model holds fp32 parameters with requires_grad set as wanted; frozen ones are rounded too
  // but not trained.
  MasterWeights(nn::Module& model, std::optional<at::ScalarType> compute_dtype);

  // The model's tensors <- the fp32 weights, rounded. After the optimizer's step.
  void refresh_model();
  // Adds the model's gradients to the fp32 gradients and frees them. After each backward.
  void collect_gradients();
  void zero_grad();

  // Trained tensors with their fp32 gradients, always in the same order.
  std::vector<optim::OptimizedTensor> trained() const;
  // All fp32 weights, trained or frozen, by name.
  std::vector<nn::NamedTensor> all();

 private:
  struct Entry {
    std::string name;
    at::Tensor* model;  // the module's member
    at::Tensor master;  // fp32; the same tensor as *model without a compute type
    at::Tensor grad;    // fp32 sum, undefined before the first backward
    bool trained;
  };
  std::vector<Entry> entries_;
  std::optional<at::ScalarType> compute_dtype_;
};

// "fp32", "bf16", "fp16" of the configuration; nullopt for fp32 (the stored type).
std::optional<at::ScalarType> compute_dtype(const std::optional<std::string>& name);

}  // namespace shardloom::trainer
