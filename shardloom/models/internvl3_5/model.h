// InternVL3.5: InternViT, pixel shuffle, mlp1, Qwen3 (OpenGVLab modeling_internvl_chat.py).
#pragma once

#include "shardloom/models/internvl3_5/config_export.h"
#include "shardloom/models/internvl3_5/language.h"
#include "shardloom/models/internvl3_5/vision.h"
#include "shardloom/models/model.h"

namespace shardloom::models::internvl3_5 {

// LayerNorm (eps 1e-5) -> Linear -> GELU -> Linear, named 0, 1, 3 as in the Sequential it mirrors.
class Mlp1 : public nn::Callable<Mlp1> {
 public:
  Mlp1(int64_t in_features, int64_t hidden_size, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x);

  nn::LayerNorm norm;
  nn::Linear linear1;
  nn::Linear linear2;
};

// out[t, r, s, (dr*2 + ds)*C + c] = in[t, 2r+dr, 2s+ds, c]: [T, g, g, C] -> [T, g/2, g/2, 4C]
// (ps_version v2); with `v2` false the result's rows and columns are swapped (v1).
at::Tensor pixel_shuffle(const at::Tensor& x_TggC, bool v2);

// Batch arrays: input_ids [B, S], attention_mask [B, S] (1 = real token), pixel_values [T, 3, H,
// W], image_flags [T].
class InternVL : public models::Model {
 public:
  InternVL(const Config& config,
           int64_t image_token_id,
           bool keep_router_logits,
           const at::TensorOptions& options);

  void init_parameter(const std::string& name, const at::Tensor& value) const override;
  TensorMap idle_batch() const override;
  std::vector<std::string> execution_order() override;
  std::vector<std::string> called_modules() override;
  std::vector<std::string> expert_modules() override;
  SequenceSeams sequence_seams() override;
  std::optional<ModelFacts> facts() const override;
  std::vector<nn::WeightSource> weight_sources(nn::Layout layout) const override;
  bool may_ignore(const std::string& file_key) const override;
  nn::Layout layout() const override { return config_.layout; }
  std::string export_config(const std::string& torch_dtype, nn::Layout layout) const override {
    return internvl3_5::export_config(config_, image_token_id_, torch_dtype, layout);
  }

  VisionModel vision_model;
  Mlp1 mlp1;
  LanguageModel language_model;

 protected:
  ModelOutput forward_loss(const TensorMap& batch, const LossTargets& targets) override;
  at::Tensor forward_logits(const TensorMap& batch) override;

 private:
  // Features of the tiles whose flag is 1: [num_tiles * image_tokens, D].
  at::Tensor image_features(const TensorMap& batch);
  DecoderOutput hidden_states(const TensorMap& batch);

  Config config_;
  int64_t image_token_id_;
};

std::unique_ptr<models::Model> build(const BuildOptions& options);

// How each parameter stands in files of `layout`.
std::vector<nn::WeightSource> weight_sources(const Config& config, nn::Layout layout);

}  // namespace shardloom::models::internvl3_5
