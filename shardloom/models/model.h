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
#include "shardloom/ops/load_balancing.h"

namespace shardloom::models {

// The arrays of a batch by name, on the model's device.
using TensorMap = std::map<std::string, at::Tensor>;

// Where the loss is taken: targets [B, S] (shifted labels, -100 = none) and weights [B, S] fp32
// (loss/loss.h). real_tokens [B, S]: 1 where a token is no padding, undefined when
// all are; what router statistics count.
struct LossTargets {
  at::Tensor targets;
  at::Tensor weights;
  at::Tensor real_tokens;
};

struct ModelOutput {
  at::Tensor loss;         // fp32 scalar: sum of weight * cross entropy
  ops::RouterSums router;  // undefined unless asked for by BuildOptions::keep_router_logits
  template <typename F>
  void visit_tensors(F&& f) {
    f(loss);
    router.visit_tensors(f);
  }
};

// What of a model bounds the sizes of a run.
struct ModelFacts {
  int64_t heads = 1;  // of the language model's attention
  int64_t kv_heads = 1;
  int64_t vision_heads = 0;   // 0: no vision model
  int64_t vision_tokens = 0;  // of one picture tile inside the vision model, class token included
  int64_t experts = 0;        // 0: dense
  int64_t top_k = 0;          // experts of one token
};

// What is parallel about a model, as data: names of its modules.
struct SequenceSeams {
  std::vector<std::string> split_inputs;    // the sequence may be cut at the first input, dim 1
  std::vector<std::string> gather_outputs;  // and is joined at the first output, dim 1
  std::vector<std::string> attention;       // nn::Attention, which must see whole sequences
};

// Both ways of calling a model go through the call seam, so that wrappers on the root run.
class Model : public nn::Module {
 public:
  bool is_callable() const override { return true; }
  // Loss of one micro batch. Throws DataError when the arrays do not fit together.
  ModelOutput compute_loss(const TensorMap& batch, const LossTargets& targets) {
    return call_wrapped(
        [this](const TensorMap& b, const LossTargets& t) { return forward_loss(b, t); }, batch,
        targets);
  }
  // fp32 logits [B, S, V] of the same batch, for evaluation and tests.
  at::Tensor compute_logits(const TensorMap& batch) {
    return call_wrapped([this](const TensorMap& b) { return forward_logits(b); }, batch);
  }

  // Fills one whole parameter with the family's random initialisation (at::Generator of the default
  // CPU engine). Called for every parameter in the order of named_parameters().
  virtual void init_parameter(const std::string& name, const at::Tensor& value) const = 0;
  // The smallest batch that runs every module, has no target and stands for no sample: what a rank
  // computes when it has nothing to do but its peers have.
  virtual TensorMap idle_batch() const = 0;
  // Names of the modules in the order in which forward reaches them, parents before children. By
  // default the order of registration.
  virtual std::vector<std::string> execution_order();

  // Names of the modules that the model calls past their parents' forward: a unit around one would
  // be gathered too late for it. By default none is known.
  virtual std::vector<std::string> called_modules() { return {}; }
  // Names of the modules of experts, first layer first; each is called with expert ids as its third
  // input. Empty for a dense model; otherwise facts() gives their number.
  virtual std::vector<std::string> expert_modules() { return {}; }
  // Empty: sequences cannot be cut. Where they are, forward_loss() gets the targets of one part.
  virtual SequenceSeams sequence_seams() { return {}; }
  // Nothing: no limits are known, and none are checked.
  virtual std::optional<ModelFacts> facts() const { return std::nullopt; }
  // How the parameters are stored in HF files of each layout; drives loading and export. By default
  // each under its own name.
  virtual std::vector<nn::WeightSource> weight_sources(nn::Layout layout) const;
  // Tensors of the files that the model does without on purpose (layers cut by num_hidden_layers).
  virtual bool may_ignore(const std::string& file_key) const { return false; }
  // Layout of the folder that the model was built from, which exports use unless told otherwise.
  virtual nn::Layout layout() const { return nn::Layout::kRemoteCode; }
  // config.json text for an export of this model (number of layers as built) with the weights in
  // this layout; torch_dtype as in "float32". Throws CheckpointError for a layout that cannot say
  // what the model is.
  virtual std::string export_config(const std::string& torch_dtype, nn::Layout layout) const = 0;

 protected:
  virtual ModelOutput forward_loss(const TensorMap& batch, const LossTargets& targets) = 0;
  virtual at::Tensor forward_logits(const TensorMap& batch) = 0;
};

// init_parameter() for all parameters, in place.
void init_random(Model& model);

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
