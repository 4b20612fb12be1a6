#include "shardloom/models/internvl3_5/config_export.h"

#include "shardloom/base/error.h"

namespace shardloom::models::internvl3_5 {
namespace {

const char* language_section(nn::Layout layout) {
  return nn::is_hf(layout) ? "text_config" : "llm_config";
}

// Both layouts use the classes of Qwen3. Values are written out that the file may have left to a
// class's defaults, and under the names that all versions of transformers read.
Json language_json(const Config& config) {
  const LanguageConfig& c = config.language;
  Json json = config.source.at(language_section(config.layout));
  for (const char* key : {"rope_parameters", "num_local_experts", "layer_types", "dtype"})
    json.erase(key);
  const bool is_moe = c.num_experts > 0;
  json.update(
      {{"architectures", Json::array({is_moe ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM"})},
       {"vocab_size", c.vocab_size},
       {"hidden_size", c.hidden_size},
       {"num_hidden_layers", c.num_hidden_layers},
       {"num_attention_heads", c.num_attention_heads},
       {"num_key_value_heads", c.num_key_value_heads},
       {"head_dim", c.head_dim},
       {"hidden_act", "silu"},
       {"rms_norm_eps", c.rms_norm_eps},
       {"rope_theta", c.rope_theta},
       {"rope_scaling", nullptr},
       {"initializer_range", c.initializer_range},
       {"attention_bias", false},
       {"tie_word_embeddings", false},
       {"torch_dtype", ""}});
  if (c.intermediate_size > 0) json["intermediate_size"] = c.intermediate_size;
  if (is_moe) {
    json.update({{"num_experts", c.num_experts},
                 {"num_experts_per_tok", c.num_experts_per_tok},
                 {"moe_intermediate_size", c.moe_intermediate_size},
                 {"norm_topk_prob", c.norm_topk_prob},
                 {"decoder_sparse_step", c.decoder_sparse_step},
                 {"mlp_only_layers", c.mlp_only_layers}});
  }
  return json;
}

// What both layouts call the same.
Json vision_json(const VisionConfig& c) {
  return {{"hidden_size", c.hidden_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"intermediate_size", c.intermediate_size},
          {"num_channels", c.num_channels},
          {"norm_type", "layer_norm"},
          {"layer_norm_eps", c.layer_norm_eps},
          {"hidden_act", "gelu"},
          {"attention_dropout", 0.0},
          {"initializer_range", c.initializer_range},
          {"drop_path_rate", c.drop_path_rate},
          {"torch_dtype", ""}};
}

Json to_remote_code(const Config& config) {
  Json vision = vision_json(config.vision);
  vision.update({{"architectures", Json::array({"InternVisionModel"})},
                 {"model_type", "intern_vit_6b"},
                 {"image_size", config.vision.image_size},
                 {"patch_size", config.vision.patch_size},
                 {"qkv_bias", config.vision.qkv_bias},
                 {"qk_normalization", false},
                 {"dropout", 0.0},
                 {"initializer_factor", config.vision.initializer_factor},
                 {"use_flash_attn", true}});
  return {{"architectures", Json::array({"InternVLChatModel"})},
          {"model_type", "internvl_chat"},
          {"auto_map",
           {{"AutoConfig", "configuration_internvl_chat.InternVLChatConfig"},
            {"AutoModel", "modeling_internvl_chat.InternVLChatModel"},
            {"AutoModelForCausalLM", "modeling_internvl_chat.InternVLChatModel"}}},
          {"downsample_ratio", config.downsample_ratio},
          {"dynamic_image_size", true},
          {"force_image_size", config.force_image_size},
          {"hidden_size", config.language.hidden_size},
          {"llm_config", language_json(config)},
          {"max_dynamic_patch", 12},
          {"min_dynamic_patch", 1},
          {"pad2square", false},
          {"ps_version", "v2"},
          {"select_layer", config.select_layer},
          {"template", "internvl2_5"},
          {"tie_word_embeddings", false},
          {"torch_dtype", ""},
          {"use_backbone_lora", 0},
          {"use_llm_lora", 0},
          {"use_thumbnail", true},
          {"vision_config", std::move(vision)}};
}

void require_hf_can_say(const Config& config, int64_t image_token_id) {
  if (!config.pixel_shuffle_v2) {
    throw CheckpointError(
        "the HF layout has no pixel shuffle of ps_version v1, which the model's "
        "config.json says; export it in the remote-code layout");
  }
  if (config.force_image_size != config.vision.image_size) {
    throw CheckpointError(
        "the HF layout has one picture size, but config.json says force_image_size {} and "
        "vision_config.image_size {}; export the model in the remote-code layout",
        config.force_image_size, config.vision.image_size);
  }
  if (image_token_id < 0) {
    throw CheckpointError(
        "the HF layout's config.json needs the id of the picture token, which the model was built "
        "without");
  }
}

Json to_hf(const Config& config, int64_t image_token_id) {
  require_hf_can_say(config, image_token_id);
  const int64_t side = config.vision.image_size, patch = config.vision.patch_size;
  Json vision = vision_json(config.vision);
  vision.update({{"model_type", "internvl_vision"},
                 {"image_size", Json::array({side, side})},
                 {"patch_size", Json::array({patch, patch})},
                 {"attention_bias", config.vision.qkv_bias},
                 {"use_qk_norm", false},
                 {"hidden_dropout_prob", 0.0},
                 {"projection_dropout", 0.0},
                 {"layer_scale_init_value", config.vision.initializer_factor},
                 {"use_absolute_position_embeddings", true},
                 {"use_mask_token", false},
                 {"use_mean_pooling", true}});
  return {{"architectures", Json::array({"InternVLForConditionalGeneration"})},
          {"model_type", "internvl"},
          {"downsample_ratio", config.downsample_ratio},
          {"image_seq_length", config.image_tokens()},
          {"image_token_id", image_token_id},
          {"projector_hidden_act", "gelu"},
          {"text_config", language_json(config)},
          {"tie_word_embeddings", false},
          {"torch_dtype", ""},
          {"vision_config", std::move(vision)},
          {"vision_feature_layer", config.select_layer},
          {"vision_feature_select_strategy", "default"}};
}

// The file as it was, for the number of layers that the model has.
Json as_read(const Config& config) {
  Json json = config.source;
  Json& language = json[language_section(config.layout)];
  const auto layers = static_cast<size_t>(config.language.num_hidden_layers);
  language["num_hidden_layers"] = layers;
  const auto types = language.find("layer_types");
  if (types != language.end() && types->is_array() && types->size() > layers)
    types->erase(types->begin() + static_cast<std::ptrdiff_t>(layers), types->end());
  return json;
}

}  // namespace

std::string export_config(const Config& config,
                          int64_t image_token_id,
                          const std::string& torch_dtype,
                          nn::Layout layout) {
  const bool is_same = nn::is_hf(layout) == nn::is_hf(config.layout);
  Json json = is_same             ? as_read(config)
              : nn::is_hf(layout) ? to_hf(config, image_token_id)
                                  : to_remote_code(config);
  for (Json* section : {&json, &json[language_section(layout)], &json["vision_config"]}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (section->contains(key)) (*section)[key] = torch_dtype;
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace shardloom::models::internvl3_5
