// Configuration of InternVL3.5 as read from config.json, in either layout (remote code
// "internvl_chat" or HF "internvl").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shardloom/base/json.h"
#include "shardloom/nn/weight_source.h"

namespace shardloom::models::internvl3_5 {

struct VisionConfig {
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t image_size = 0;
  int64_t patch_size = 0;
  int64_t num_channels = 3;
  bool qkv_bias = true;
  double layer_norm_eps = 1e-6;
  double drop_path_rate = 0;
  double initializer_range = 0.02;
  double initializer_factor = 0.1;  // initial layer scale

  int64_t grid() const { return image_size / patch_size; }
  bool operator==(const VisionConfig&) const = default;
};

struct LanguageConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e6;
  double initializer_range = 0.02;
  // Mixture of experts; num_experts 0 for the dense models.
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = false;
  int64_t decoder_sparse_step = 1;
  std::vector<int64_t> mlp_only_layers;

  bool is_moe_layer(int64_t layer) const;
  bool operator==(const LanguageConfig&) const = default;
};

struct Config {
  nn::Layout layout = nn::Layout::kRemoteCode;
  VisionConfig vision;
  LanguageConfig language;
  double downsample_ratio = 0.5;
  int64_t select_layer = -1;
  int64_t force_image_size = 448;
  bool pixel_shuffle_v2 = true;
  int64_t image_token_id = -1;  // only the HF layout states it
  Json source;                  // the file as read, for export

  int64_t image_tokens() const;
};

// Reads and checks <folder>/config.json; `num_hidden_layers` > 0 truncates the language model.
// Throws CheckpointError naming the file, key and value; values that this build does not compute
// are refused by name.
Config read_config(const std::filesystem::path& folder, int64_t num_hidden_layers = 0);

}  // namespace shardloom::models::internvl3_5
