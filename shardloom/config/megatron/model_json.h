// model.json of the Megatron-style path: which model, its folder, its loss. Member names are the
// keys; unknown keys are errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "shardloom/config/schema.h"

namespace shardloom::config::megatron {

// Numbers that Megatron's own checks want; the model's sizes come from its config.json.
struct TextDecoder {
  std::optional<std::string> model_id;
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> max_position_embeddings;
};

// Switches of patches of the Python stack.
struct ModelPatch {
  std::optional<bool> clip_grad_async;
  std::optional<bool> scale_grad;
};

struct ModelLossCfg {
  std::string compute_mode = "default";  // default | chunk | dynamic_chunk
  std::optional<int64_t> chunk_size;     // null: 1024 (chunk) or 4096 (dynamic_chunk)
  std::string loss_type = "default";     // default | per_sample_loss | per_token_loss |
                                         // token_loss | square_loss
  double router_aux_loss_coef = 0.0;
  std::optional<std::string> apply_module;  // output layer of the chunk modes, one pattern
};

struct ModelJson {
  std::string model_id;           // required; registry key, or internvl
  std::string init_from_hf_path;  // required; folder with config.json and tokenizer
  std::optional<int64_t> img_context_token_id;
  std::optional<int64_t> num_hidden_layers;  // null keeps all; a number cuts the language model
  bool random_init = false;                  // unless --load names weights
  bool trust_remote_code = false;
  Patterns freeze;
  std::optional<std::string> attn_implementation;
  ModelLossCfg loss_cfg;
  TextDecoder text_decoder;
  ModelPatch patch;

  Sources sources;  // where each given value stands, by key path ("loss_cfg.loss_type")
};

// Throws one ConfigError with a line "file:line:column: message" for each fault.
ModelJson load_model_json(const std::filesystem::path& path);
// The same from text; `origin` names it in places.
ModelJson parse_model_json(std::string_view text, const std::string& origin);

}  // namespace shardloom::config::megatron
