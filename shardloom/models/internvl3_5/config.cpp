#include "shardloom/models/internvl3_5/config.h"

#include <algorithm>

namespace shardloom::models::internvl3_5 {
namespace {

// One JSON object of the file with its path, for errors that name the place.
class Section {
 public:
  Section(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json_.is_object()) throw CheckpointError("{} is not an object", place_);
  }

  Section child(const std::string& key) const { return {at(key), place_ + "." + key}; }

  bool has(const std::string& key) const { return json_.contains(key) && !json_[key].is_null(); }

  template <typename T>
  T get(const std::string& key) const {
    const Json& value = at(key);
    try {
      return value.get<T>();
    } catch (const Json::exception&) {
      throw CheckpointError("{}.{} = {} has the wrong type", place_, key, value.dump());
    }
  }
  template <typename T>
  T get_or(const std::string& key, T fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }

  int64_t positive(const std::string& key) const {
    const auto value = get<int64_t>(key);
    if (value < 1 || value > (int64_t{1} << 31))
      throw CheckpointError("{}.{} = {} is out of range", place_, key, value);
    return value;
  }

  // A number, or a list of equal numbers ([448, 448]).
  int64_t square(const std::string& key) const {
    const Json& value = at(key);
    if (!value.is_array()) return positive(key);
    if (value.size() != 2 || value[0] != value[1] || !value[0].is_number_integer() ||
        value[0].get<int64_t>() < 1) {
      throw CheckpointError("{}.{} = {}: only square pictures and patches are supported", place_,
                            key, value.dump());
    }
    return value[0].get<int64_t>();
  }

  // Refuses a value other than `supported`; a missing key counts as supported.
  template <typename T>
  void require(const std::string& key, const T& supported) const {
    if (has(key) && json_[key] != Json(supported)) {
      throw CheckpointError("{}.{} = {} is not supported (only {})", place_, key, json_[key].dump(),
                            Json(supported).dump());
    }
  }

 private:
  const Json& at(const std::string& key) const {
    if (!has(key)) throw CheckpointError("{} lacks the key \"{}\"", place_, key);
    return json_.at(key);
  }

  const Json& json_;
  std::string place_;
};

VisionConfig read_vision(const Section& s, bool hf_native) {
  VisionConfig c;
  c.hidden_size = s.positive("hidden_size");
  c.num_hidden_layers = s.positive("num_hidden_layers");
  c.num_attention_heads = s.positive("num_attention_heads");
  c.intermediate_size = s.positive("intermediate_size");
  c.image_size = s.square("image_size");
  c.patch_size = s.square("patch_size");
  c.num_channels = s.get_or<int64_t>("num_channels", 3);
  c.qkv_bias = hf_native ? s.get_or("attention_bias", false) : s.get_or("qkv_bias", true);
  c.layer_norm_eps = s.get_or("layer_norm_eps", 1e-6);
  c.drop_path_rate = s.get_or("drop_path_rate", 0.0);
  c.initializer_range = s.get_or("initializer_range", 0.02);
  c.initializer_factor =
      hf_native ? s.get_or("layer_scale_init_value", 0.1) : s.get_or("initializer_factor", 0.1);
  s.require(hf_native ? "use_qk_norm" : "qk_normalization", false);
  s.require("norm_type", "layer_norm");
  s.require("hidden_act", "gelu");
  s.require("dropout", 0.0);
  s.require("attention_dropout", 0.0);
  s.require("hidden_dropout_prob", 0.0);
  s.require("use_mean_pooling", true);
  if (c.hidden_size % c.num_attention_heads != 0 || c.image_size % c.patch_size != 0) {
    throw CheckpointError(
        "vision_config: hidden_size {} must be a multiple of num_attention_heads {}, and "
        "image_size {} of patch_size {}",
        c.hidden_size, c.num_attention_heads, c.image_size, c.patch_size);
  }
  if (c.drop_path_rate < 0 || c.drop_path_rate >= 1) {
    throw CheckpointError("vision_config.drop_path_rate = {} is not in [0, 1)", c.drop_path_rate);
  }
  return c;
}

void read_experts(const Section& s, LanguageConfig& c) {
  c.num_experts =
      s.positive(s.has("num_local_experts") ? "num_local_experts"
                                            : "num_experts");  // renamed in transformers 5
  c.num_experts_per_tok = s.positive("num_experts_per_tok");
  c.moe_intermediate_size = s.positive("moe_intermediate_size");
  c.norm_topk_prob = s.get<bool>("norm_topk_prob");
  c.decoder_sparse_step = s.get_or<int64_t>("decoder_sparse_step", 1);
  c.mlp_only_layers = s.get_or<std::vector<int64_t>>("mlp_only_layers", {});
  if (c.num_experts_per_tok > c.num_experts || c.decoder_sparse_step < 1) {
    throw CheckpointError(
        "language config: num_experts_per_tok {} of num_experts {}, decoder_sparse_step {}: out of "
        "range",
        c.num_experts_per_tok, c.num_experts, c.decoder_sparse_step);
  }
}

// rope_theta stands at the top level, or (newer transformers) inside rope_parameters.
double read_rope_theta(const Section& s) {
  if (!s.has("rope_parameters")) return s.get_or("rope_theta", 1e6);
  const Section rope = s.child("rope_parameters");
  rope.require("rope_type", "default");
  return rope.get_or("rope_theta", s.get_or("rope_theta", 1e6));
}

LanguageConfig read_language(const Section& s) {
  LanguageConfig c;
  const auto type = s.get<std::string>("model_type");
  if (type != "qwen3" && type != "qwen3_moe") {
    throw CheckpointError("language model_type \"{}\" is not supported (only qwen3 and qwen3_moe)",
                          type);
  }
  c.vocab_size = s.positive("vocab_size");
  c.hidden_size = s.positive("hidden_size");
  c.num_hidden_layers = s.positive("num_hidden_layers");
  c.num_attention_heads = s.positive("num_attention_heads");
  c.num_key_value_heads = s.get_or("num_key_value_heads", c.num_attention_heads);
  c.head_dim = s.get_or("head_dim", c.hidden_size / c.num_attention_heads);
  c.intermediate_size = s.get_or<int64_t>("intermediate_size", 0);
  c.rms_norm_eps = s.get_or("rms_norm_eps", 1e-6);
  c.rope_theta = read_rope_theta(s);
  c.initializer_range = s.get_or("initializer_range", 0.02);
  s.require("hidden_act", "silu");
  s.require("attention_bias", false);
  s.require("attention_dropout", 0.0);
  s.require("use_sliding_window", false);
  if (s.has("rope_scaling"))
    throw CheckpointError("language config: rope_scaling is not supported");
  if (type == "qwen3_moe") read_experts(s, c);
  if (c.num_key_value_heads < 1 || c.num_attention_heads % c.num_key_value_heads != 0 ||
      c.head_dim < 2 || c.head_dim % 2 != 0) {
    throw CheckpointError(
        "language config: num_attention_heads {} must be a multiple of num_key_value_heads {}, and "
        "head_dim {} even",
        c.num_attention_heads, c.num_key_value_heads, c.head_dim);
  }
  const bool has_dense_layer = [&] {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
      if (!c.is_moe_layer(i)) return true;
    }
    return false;
  }();
  if (has_dense_layer) c.intermediate_size = s.positive("intermediate_size");
  return c;
}

}  // namespace

bool LanguageConfig::is_moe_layer(int64_t layer) const {
  return num_experts > 0 && (layer + 1) % decoder_sparse_step == 0 &&
         std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) == mlp_only_layers.end();
}

int64_t Config::image_tokens() const {
  const auto side = static_cast<int64_t>(static_cast<double>(force_image_size / vision.patch_size) *
                                         downsample_ratio);
  return side * side;
}

Config read_config(const std::filesystem::path& folder, int64_t num_hidden_layers) {
  const std::filesystem::path path = folder / "config.json";
  Config config;
  config.source = read_json_file(path, ExitCode::kCheckpoint);
  const Section root(config.source, path.string());
  const auto type = root.get<std::string>("model_type");
  if (type != "internvl_chat" && type != "internvl") {
    throw CheckpointError(
        "{}: model_type \"{}\" is not InternVL3.5 (\"internvl_chat\" or \"internvl\")",
        path.string(), type);
  }
  const bool hf_native = type == "internvl";
  config.layout = hf_native ? nn::Layout::kHfNative : nn::Layout::kRemoteCode;
  config.vision = read_vision(root.child("vision_config"), hf_native);
  const Section language = root.child(hf_native ? "text_config" : "llm_config");
  config.language = read_language(language);
  config.downsample_ratio = root.get_or("downsample_ratio", 0.5);
  config.select_layer =
      root.get_or<int64_t>(hf_native ? "vision_feature_layer" : "select_layer", -1);
  config.force_image_size = config.vision.image_size;
  if (hf_native) {
    root.require("vision_feature_select_strategy", "default");
    root.require("projector_hidden_act", "gelu");
    config.image_token_id = root.get<int64_t>("image_token_id");
  } else {
    config.force_image_size =
        root.has("force_image_size") ? root.positive("force_image_size") : config.vision.image_size;
    config.pixel_shuffle_v2 = root.get_or<std::string>("ps_version", "v1") == "v2";
    root.require("use_backbone_lora", 0);
    root.require("use_llm_lora", 0);
    root.require("tie_word_embeddings", false);
  }
  language.require("tie_word_embeddings", false);
  const int64_t layers = config.vision.num_hidden_layers;
  if (config.select_layer < -layers - 1 || config.select_layer > layers) {
    throw CheckpointError("{}: select_layer {} with {} vision layers", path.string(),
                          config.select_layer, layers);
  }
  const int64_t grid = config.force_image_size / config.vision.patch_size;
  if (config.force_image_size % config.vision.patch_size != 0 || config.downsample_ratio != 0.5 ||
      grid % 2 != 0) {
    throw CheckpointError(
        "{}: force_image_size {} with patch_size {} and downsample_ratio {} does not give an even "
        "grid of patches halved by the pixel shuffle",
        path.string(), config.force_image_size, config.vision.patch_size, config.downsample_ratio);
  }
  if (num_hidden_layers > config.language.num_hidden_layers) {
    throw ConfigError(
        "model.num_hidden_layers = {} but {} has {} layers; use null to keep them all",
        num_hidden_layers, path.string(), config.language.num_hidden_layers);
  }
  if (num_hidden_layers > 0) config.language.num_hidden_layers = num_hidden_layers;
  return config;
}

}  // namespace shardloom::models::internvl3_5
