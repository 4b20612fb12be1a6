#include "shardloom/config/megatron/model_json.h"

#include <fmt/format.h>

#include "shardloom/config/megatron/document.h"

namespace shardloom::config {

template <>
const Section& section_of<megatron::TextDecoder>() {
  using T = megatron::TextDecoder;
  static const char* const kWhy = "The model's config.json says it.";
  static const Section section =
      SectionBuilder<T>()
          .add_without_effect("model_id", &T::model_id, kWhy)
          .add_without_effect("num_layers", &T::num_layers, kWhy)
          .add_without_effect("hidden_size", &T::hidden_size, kWhy)
          .add_without_effect("num_attention_heads", &T::num_attention_heads, kWhy)
          .add_without_effect("max_position_embeddings", &T::max_position_embeddings, kWhy);
  return section;
}

template <>
const Section& section_of<megatron::ModelPatch>() {
  using T = megatron::ModelPatch;
  static const Section section =
      SectionBuilder<T>()
          .add_without_effect("clip_grad_async", &T::clip_grad_async,
                              "Clipping never waits for the device.")
          .add_without_effect("scale_grad", &T::scale_grad,
                              "Gradients are those of the global batch.");
  return section;
}

template <>
const Section& section_of<megatron::ModelLossCfg>() {
  using T = megatron::ModelLossCfg;
  static const Section section =
      SectionBuilder<T>()
          .add("compute_mode", &T::compute_mode,
               "default computes all logits; chunk computes logits and loss in chunks of the "
               "sequence; dynamic_chunk chooses the chunk from chunk_size and the batch.",
               one_of({"default", "chunk", "dynamic_chunk"}))
          .add("chunk_size", &T::chunk_size,
               "Positions per chunk (chunk; null is 1024), or positions x samples (dynamic_chunk; "
               "null is 4096).",
               at_least(1))
          .add(
              "loss_type", &T::loss_type,
              "Normalisation of the loss. default, per_token_loss and token_loss: mean over all "
              "targets of the global batch. per_sample_loss: mean over the samples with targets "
              "of each sample's mean. square_loss: samples weighted by 1 / sqrt(targets).",
              one_of({"default", "per_sample_loss", "per_token_loss", "token_loss", "square_loss"}))
          .add("router_aux_loss_coef", &T::router_aux_loss_coef,
               "Weight of the router's load-balancing loss.", at_least(0))
          .add("apply_module", &T::apply_module,
               "Output layer of the chunk modes, as one pattern; null is language_model.lm_head "
               "for internvl, else lm_head (ours).",
               non_empty());
  return section;
}

template <>
const Section& section_of<megatron::ModelJson>() {
  using T = megatron::ModelJson;
  static const Section section =
      SectionBuilder<T>()
          .add("model_id", &T::model_id,
               "Name in the model registry; internvl is InternVL3.5 (internvl3_5).", required())
          .add("init_from_hf_path", &T::init_from_hf_path,
               "Folder with config.json and tokenizer, and the weights when --load names none.",
               required())
          .add_without_effect("img_context_token_id", &T::img_context_token_id,
                              "The tokenizer says it.")
          .add("num_hidden_layers", &T::num_hidden_layers,
               "Layers of the language model to keep; null keeps all (ours).", at_least(1))
          .add("random_init", &T::random_init,
               "Start from random weights when --load names none (ours).")
          .add_without_effect("trust_remote_code", &T::trust_remote_code,
                              "No code is read from a model's folder.")
          .add("freeze", &T::freeze, "Modules that are not trained, as patterns (ours).")
          .add("attn_implementation", &T::attn_implementation,
               "Attention; null is flash_attention_2.",
               one_of({"eager", "sdpa", "flash_attention_2", "flash_attention_3"}))
          .add("loss_cfg", &T::loss_cfg, "The loss.")
          .add("text_decoder", &T::text_decoder, "Numbers for Megatron's own checks.")
          .add("patch", &T::patch, "Patches of the Python stack.");
  return section;
}

}  // namespace shardloom::config

namespace shardloom::config::megatron {

ModelJson parse_model_json(std::string_view text, const std::string& origin) {
  Problems problems;
  ModelJson parsed = parse_json_document<ModelJson>(text, origin, problems);
  problems.throw_if_any();
  return parsed;
}

ModelJson load_model_json(const std::filesystem::path& path) {
  return parse_model_json(read_document(path, "--mm-model"), path.string());
}

}  // namespace shardloom::config::megatron
