// Qwen3 and Qwen3-MoE decoder (transformers modeling_qwen3.py, modeling_qwen3_moe.py).
//
// Legend: B samples, S sequence, D hidden size, h heads, g key/value heads, d head size, E experts,
// I expert width.
#pragma once

#include <memory>
#include <vector>

#include "shardloom/models/internvl3_5/config.h"
#include "shardloom/nn/attention.h"
#include "shardloom/nn/layers.h"
#include "shardloom/nn/loss_head.h"
#include "shardloom/ops/moe.h"

namespace shardloom::models::internvl3_5 {

class SelfAttention : public nn::Callable<SelfAttention> {
 public:
  SelfAttention(const LanguageConfig& config,
                std::shared_ptr<nn::RopeCache> rope,
                const at::TensorOptions& options);
  // Causal; q and k are normalised per head and rotated.
  at::Tensor forward(const at::Tensor& x_BSD);

  nn::Linear q_proj, k_proj, v_proj, o_proj;
  nn::RmsNorm q_norm, k_norm;
  nn::Attention core;

 private:
  LanguageConfig config_;
};

// down(silu(gate(x)) * up(x))
class DenseMlp : public nn::Callable<DenseMlp> {
 public:
  DenseMlp(const LanguageConfig& config, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x);

  nn::Linear gate_proj, up_proj, down_proj;
};

// All experts of a layer in the fused layout: gate_up_proj [E*D, 2I] (gate in columns 0..I-1),
// down_proj [E*I, D].
class Experts : public nn::Callable<Experts> {
 public:
  Experts(const LanguageConfig& config, const at::TensorOptions& options);
  // x [T, D], weights [T, K], expert ids [T, K] -> [T, D]
  at::Tensor forward(const at::Tensor& x_TD,
                     const at::Tensor& weights_TK,
                     const at::Tensor& experts_TK);

  at::Tensor gate_up_proj;
  at::Tensor down_proj;
};

struct MoeOutput {
  at::Tensor hidden;         // [B, S, D]
  at::Tensor router_logits;  // [B*S, E]; undefined unless kept
  template <typename F>
  void visit_tensors(F&& f) {
    f(hidden);
    if (router_logits.defined()) f(router_logits);
  }
};

class SparseMoe : public nn::Callable<SparseMoe> {
 public:
  SparseMoe(const LanguageConfig& config, const at::TensorOptions& options);
  MoeOutput forward(const at::Tensor& x_BSD);

  nn::Linear gate;
  Experts experts;

 private:
  int64_t top_k_;
  bool normalize_;
};

class DecoderLayer : public nn::Callable<DecoderLayer> {
 public:
  DecoderLayer(const LanguageConfig& config,
               int64_t index,
               bool keep_router_logits,
               std::shared_ptr<nn::RopeCache> rope,
               const at::TensorOptions& options);
  MoeOutput forward(const at::Tensor& x_BSD);

  nn::RmsNorm input_layernorm;
  SelfAttention self_attn;
  nn::RmsNorm post_attention_layernorm;
  std::unique_ptr<DenseMlp> dense;  // exactly one of the two
  std::unique_ptr<SparseMoe> moe;

 private:
  bool keep_router_logits_;
};

struct DecoderOutput {
  at::Tensor hidden;                      // [B, S, D], after the final norm
  std::vector<at::Tensor> router_logits;  // one a MoE layer, when kept
  template <typename F>
  void visit_tensors(F&& f) {
    f(hidden);
    for (at::Tensor& logits : router_logits) f(logits);
  }
};

class Decoder : public nn::Callable<Decoder> {
 public:
  Decoder(const LanguageConfig& config, bool keep_router_logits, const at::TensorOptions& options);
  DecoderOutput forward(const at::Tensor& embeds_BSD);

  nn::Embedding embed_tokens;
  nn::ModuleList<DecoderLayer> layers;
  nn::RmsNorm norm;
};

class LanguageModel : public nn::Module {
 public:
  LanguageModel(const LanguageConfig& config,
                bool keep_router_logits,
                const at::TensorOptions& options);

  Decoder model;
  nn::LossHead lm_head;  // never tied to the embedding
};

}  // namespace shardloom::models::internvl3_5
