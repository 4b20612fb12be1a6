// What the trainer needs of a model, and the registry of models. A model is single-device code:
// nothing here or below knows ranks, meshes or the configuration file.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardloom/base/registry.h"
#include "shardloom/nn/module.h"
#include "shardloom/nn/weight_source.h"

namespace shardloom::models {

// The arrays of a batch by name, on the model's device.
using TensorMap = std::map<std::string, at::Tensor>;

// Where the loss is taken: targets [B, S] (shifted labels, -100 = none) and weights [B, S] fp32
// (loss/loss.h).
struct LossTargets {
  at::Tensor targets;
  at::Tensor weights;
};

struct ModelOutput {
  at::Tensor loss;  // fp32 scalar: sum of weight * cross entropy
  at::Tensor
      aux_loss;  // fp32 scalar, undefined unless asked for by BuildOptions::keep_router_logits
};

class Model : public nn::Module {
 public:
  // Loss of one micro batch. Throws DataError when the arrays do not fit together.
  virtual ModelOutput compute_loss(const TensorMap& batch, const LossTargets& targets) = 0;
  // fp32 logits [B, S, V] of the same batch, for evaluation and tests.
  virtual at::Tensor compute_logits(const TensorMap& batch) = 0;

  // Fills all parameters with the family's random initialisation (at::Generator of the default CPU
  // engine).
  virtual void init_random() = 0;
  // How the parameters are stored in HF files of each layout; drives loading and export.
  virtual std::vector<nn::WeightSource> weight_sources(nn::Layout layout) const = 0;
  // Tensors of the files that the model does without on purpose (layers cut by num_hidden_layers).
  virtual bool may_ignore(const std::string& file_key) const = 0;
  // Layout of the folder that the model was built from; exports use it too.
  virtual nn::Layout layout() const = 0;
  // config.json text for an export of this model (number of layers as built); torch_dtype as in
  // "float32".
  virtual std::string export_config(const std::string& torch_dtype) const = 0;
};

struct BuildOptions {
  std::filesystem::path folder;              // HF folder with config.json
  std::optional<int64_t> num_hidden_layers;  // truncates the language model
  bool keep_router_logits = false;           // compute the router auxiliary loss
  at::TensorOptions tensor_options;          // device (cpu, cuda, meta) and dtype of the parameters
  std::function<std::optional<int64_t>(const std::string&)>
      token_id;  // tokenizer look-up; may be empty for meta models
};

using ModelFactory = std::function<std::unique_ptr<Model>(const BuildOptions&)>;

// Filled with the built-in models on first use; plug-ins add to it.
Registry<ModelFactory>& model_registry();

}  // namespace shardloom::models
