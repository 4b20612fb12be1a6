#include "shardloom/models/internvl3_5/language.h"

#include "shardloom/ops/activation.h"

namespace shardloom::models::internvl3_5 {

SelfAttention::SelfAttention(const LanguageConfig& c,
                             std::shared_ptr<nn::RopeCache> rope,
                             const at::TensorOptions& options)
    : q_proj(c.hidden_size, c.num_attention_heads * c.head_dim, /*bias=*/false, options),
      k_proj(c.hidden_size, c.num_key_value_heads * c.head_dim, /*bias=*/false, options),
      v_proj(c.hidden_size, c.num_key_value_heads * c.head_dim, /*bias=*/false, options),
      o_proj(c.num_attention_heads * c.head_dim, c.hidden_size, /*bias=*/false, options),
      q_norm(c.head_dim, c.rms_norm_eps, options),
      k_norm(c.head_dim, c.rms_norm_eps, options),
      core(/*causal=*/true, std::move(rope)),
      config_(c) {
  register_module("q_proj", q_proj);
  register_module("k_proj", k_proj);
  register_module("v_proj", v_proj);
  register_module("o_proj", o_proj);
  register_module("q_norm", q_norm);
  register_module("k_norm", k_norm);
  register_module("core", core);
}

at::Tensor SelfAttention::forward(const at::Tensor& x_BSD) {
  const int64_t B = x_BSD.size(0), S = x_BSD.size(1);
  auto heads = [&](const at::Tensor& x, int64_t count) {
    return x.view({B, S, count, config_.head_dim});
  };
  const at::Tensor q_BShd = q_norm(heads(q_proj(x_BSD), config_.num_attention_heads));
  const at::Tensor k_BSgd = k_norm(heads(k_proj(x_BSD), config_.num_key_value_heads));
  const at::Tensor v_BSgd = heads(v_proj(x_BSD), config_.num_key_value_heads);
  return o_proj(
      core(q_BShd, k_BSgd, v_BSgd).reshape({B, S, config_.num_attention_heads * config_.head_dim}));
}

DenseMlp::DenseMlp(const LanguageConfig& c, const at::TensorOptions& options)
    : gate_proj(c.hidden_size, c.intermediate_size, /*bias=*/false, options),
      up_proj(c.hidden_size, c.intermediate_size, /*bias=*/false, options),
      down_proj(c.intermediate_size, c.hidden_size, /*bias=*/false, options) {
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

at::Tensor DenseMlp::forward(const at::Tensor& x) {
  return down_proj(ops::swiglu(gate_proj(x), up_proj(x)));
}

Experts::Experts(const LanguageConfig& c, const at::TensorOptions& options)
    : gate_up_proj(
          at::empty({c.num_experts * c.hidden_size, 2 * c.moe_intermediate_size}, options)),
      down_proj(at::empty({c.num_experts * c.moe_intermediate_size, c.hidden_size}, options)) {
  register_parameter("gate_up_proj", gate_up_proj);
  register_parameter("down_proj", down_proj);
}

at::Tensor Experts::forward(const at::Tensor& x_TD,
                            const at::Tensor& weights_TK,
                            const at::Tensor& experts_TK) {
  return ops::moe_experts(x_TD, {weights_TK, experts_TK}, gate_up_proj, down_proj);
}

SparseMoe::SparseMoe(const LanguageConfig& c, const at::TensorOptions& options)
    : gate(c.hidden_size, c.num_experts, /*bias=*/false, options),
      experts(c, options),
      top_k_(c.num_experts_per_tok),
      normalize_(c.norm_topk_prob) {
  register_module("gate", gate);
  register_module("experts", experts);
}

MoeOutput SparseMoe::forward(const at::Tensor& x_BSD) {
  const at::Tensor x_TD = x_BSD.reshape({-1, x_BSD.size(2)});
  const at::Tensor logits_TE = gate(x_TD);
  const ops::Routing routing = ops::route_top_k(logits_TE, top_k_, normalize_);
  return {experts(x_TD, routing.weights_TK, routing.experts_TK).view(x_BSD.sizes()), logits_TE};
}

DecoderLayer::DecoderLayer(const LanguageConfig& c,
                           int64_t index,
                           bool keep_router_logits,
                           std::shared_ptr<nn::RopeCache> rope,
                           const at::TensorOptions& options)
    : input_layernorm(c.hidden_size, c.rms_norm_eps, options),
      self_attn(c, std::move(rope), options),
      post_attention_layernorm(c.hidden_size, c.rms_norm_eps, options),
      keep_router_logits_(keep_router_logits) {
  register_module("self_attn", self_attn);
  if (c.is_moe_layer(index)) {
    moe = std::make_unique<SparseMoe>(c, options);
    register_module("mlp", *moe);
  } else {
    dense = std::make_unique<DenseMlp>(c, options);
    register_module("mlp", *dense);
  }
  register_module("input_layernorm", input_layernorm);
  register_module("post_attention_layernorm", post_attention_layernorm);
}

MoeOutput DecoderLayer::forward(const at::Tensor& x_BSD) {
  const at::Tensor h = x_BSD + self_attn(input_layernorm(x_BSD));
  const at::Tensor normed = post_attention_layernorm(h);
  if (dense) return {h + (*dense)(normed), {}};
  MoeOutput out = (*moe)(normed);
  return {h + out.hidden, keep_router_logits_ ? out.router_logits : at::Tensor()};
}

Decoder::Decoder(const LanguageConfig& c, bool keep_router_logits, const at::TensorOptions& options)
    : embed_tokens(c.vocab_size, c.hidden_size, options),
      norm(c.hidden_size, c.rms_norm_eps, options) {
  const auto rope = std::make_shared<nn::RopeCache>(c.head_dim, c.rope_theta);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    layers.emplace_back(c, i, keep_router_logits, rope, options);
  register_module("embed_tokens", embed_tokens);
  register_module("layers", layers);
  register_module("norm", norm);
}

DecoderOutput Decoder::forward(const at::Tensor& embeds_BSD) {
  DecoderOutput out;
  out.hidden = embeds_BSD;
  for (auto& layer : layers) {
    MoeOutput layer_out = (*layer)(out.hidden);
    out.hidden = layer_out.hidden;
    if (layer_out.router_logits.defined()) out.router_logits.push_back(layer_out.router_logits);
  }
  out.hidden = norm(out.hidden);
  return out;
}

LanguageModel::LanguageModel(const LanguageConfig& config,
                             bool keep_router_logits,
                             const at::TensorOptions& options)
    : model(config, keep_router_logits, options),
      lm_head(config.hidden_size, config.vocab_size, /*bias=*/false, options) {
  register_module("model", model);
  register_module("lm_head", lm_head);
}

}  // namespace shardloom::models::internvl3_5
