// Parameter names in files: the project's own names are those of the remote-code layout; the HF
// layout renames (transformers conversion_mapping, InternVL's internvl_custom2hf.py).
#include "shardloom/models/internvl3_5/model.h"

namespace shardloom::models::internvl3_5 {
namespace {

using Shape = std::vector<int64_t>;

class SourceList {
 public:
  SourceList(nn::Layout layout, std::vector<nn::WeightSource>& out) : layout_(layout), out_(out) {}

  bool hf() const { return nn::is_hf(layout_); }
  // What stands before the vision tower and the projector, and before the decoder.
  std::string root() const { return layout_ == nn::Layout::kHfInMemory ? "model." : ""; }
  std::string decoder() const {
    return layout_ == nn::Layout::kHfInMemory ? "model.language_model." : "language_model.model.";
  }
  std::string lm_head() const {
    return layout_ == nn::Layout::kHfInMemory ? "lm_head.weight" : "language_model.lm_head.weight";
  }

  void whole(const std::string& parameter, const std::string& key, const Shape& shape) {
    out_.push_back({parameter, {{key, shape}}});
  }
  void pieces(const std::string& parameter, std::vector<nn::WeightPiece> pieces) {
    out_.push_back({parameter, std::move(pieces)});
  }

 private:
  nn::Layout layout_;
  std::vector<nn::WeightSource>& out_;
};

// q, k and v are one matrix in remote-code files and three in HF files.
void add_qkv(SourceList& list,
             const std::string& ours,
             const std::string& file,
             const std::string& leaf,
             int64_t C) {
  const Shape part = leaf == "weight" ? Shape{C, C} : Shape{C};
  const Shape all = leaf == "weight" ? Shape{3 * C, C} : Shape{3 * C};
  if (!list.hf()) {
    list.whole(ours + ".attn.qkv." + leaf, file + ".attn.qkv." + leaf, all);
    return;
  }
  std::vector<nn::WeightPiece> pieces;
  int64_t row = 0;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    pieces.push_back({file + ".attention." + name + "." + leaf, part, row, 0, false});
    row += C;
  }
  list.pieces(ours + ".attn.qkv." + leaf, std::move(pieces));
}

void add_vision_layer(SourceList& list, const VisionConfig& c, int64_t index) {
  const int64_t C = c.hidden_size, I = c.intermediate_size;
  const std::string ours = "vision_model.encoder.layers." + std::to_string(index);
  const std::string file =
      list.hf() ? list.root() + "vision_tower.encoder.layer." + std::to_string(index) : ours;
  list.whole(ours + ".ls1", file + (list.hf() ? ".lambda_1" : ".ls1"), {C});
  list.whole(ours + ".ls2", file + (list.hf() ? ".lambda_2" : ".ls2"), {C});
  add_qkv(list, ours, file, "weight", C);
  if (c.qkv_bias) add_qkv(list, ours, file, "bias", C);
  const std::string proj = list.hf() ? ".attention.projection_layer" : ".attn.proj";
  list.whole(ours + ".attn.proj.weight", file + proj + ".weight", {C, C});
  list.whole(ours + ".attn.proj.bias", file + proj + ".bias", {C});
  const std::pair<const char*, const char*> norms[] = {{".norm1", ".layernorm_before"},
                                                       {".norm2", ".layernorm_after"}};
  for (const auto& [name, hf_name] : norms) {
    for (const char* leaf : {".weight", ".bias"}) {
      list.whole(ours + name + leaf, file + (list.hf() ? hf_name : name) + leaf, {C});
    }
  }
  list.whole(ours + ".mlp.fc1.weight", file + ".mlp.fc1.weight", {I, C});
  list.whole(ours + ".mlp.fc1.bias", file + ".mlp.fc1.bias", {I});
  list.whole(ours + ".mlp.fc2.weight", file + ".mlp.fc2.weight", {C, I});
  list.whole(ours + ".mlp.fc2.bias", file + ".mlp.fc2.bias", {C});
}

void add_vision(SourceList& list, const VisionConfig& c) {
  const std::string ours = "vision_model.embeddings.";
  const std::string file = list.hf() ? list.root() + "vision_tower.embeddings." : ours;
  const std::string patch = file + (list.hf() ? "patch_embeddings.projection" : "patch_embedding");
  const Shape kernel = {c.hidden_size, c.num_channels, c.patch_size, c.patch_size};
  list.whole(ours + "class_embedding", file + (list.hf() ? "cls_token" : "class_embedding"),
             {1, 1, c.hidden_size});
  list.whole(ours + "position_embedding",
             file + (list.hf() ? "position_embeddings" : "position_embedding"),
             {1, c.grid() * c.grid() + 1, c.hidden_size});
  list.whole(ours + "patch_embedding.weight", patch + ".weight", kernel);
  list.whole(ours + "patch_embedding.bias", patch + ".bias", {c.hidden_size});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) add_vision_layer(list, c, i);
}

void add_experts(SourceList& list,
                 const LanguageConfig& c,
                 const std::string& ours,
                 const std::string& file) {
  const int64_t D = c.hidden_size, I = c.moe_intermediate_size;
  std::vector<nn::WeightPiece> gate_up, down;
  for (int64_t e = 0; e < c.num_experts; ++e) {
    const std::string expert = file + ".mlp.experts." + std::to_string(e);
    gate_up.push_back({expert + ".gate_proj.weight", {I, D}, e * D, 0, true});
    gate_up.push_back({expert + ".up_proj.weight", {I, D}, e * D, I, true});
    down.push_back({expert + ".down_proj.weight", {D, I}, e * I, 0, true});
  }
  list.whole(ours + ".mlp.gate.weight", file + ".mlp.gate.weight", {c.num_experts, D});
  list.pieces(ours + ".mlp.experts.gate_up_proj", std::move(gate_up));
  list.pieces(ours + ".mlp.experts.down_proj", std::move(down));
}

void add_decoder_layer(SourceList& list,
                       const LanguageConfig& c,
                       const std::string& prefix,
                       int64_t index) {
  const int64_t D = c.hidden_size, Q = c.num_attention_heads * c.head_dim,
                KV = c.num_key_value_heads * c.head_dim;
  const std::string ours = "language_model.model.layers." + std::to_string(index);
  const std::string file = prefix + "layers." + std::to_string(index);
  auto same = [&](const std::string& leaf, const Shape& shape) {
    list.whole(ours + leaf, file + leaf, shape);
  };
  same(".self_attn.q_proj.weight", {Q, D});
  same(".self_attn.k_proj.weight", {KV, D});
  same(".self_attn.v_proj.weight", {KV, D});
  same(".self_attn.o_proj.weight", {D, Q});
  same(".self_attn.q_norm.weight", {c.head_dim});
  same(".self_attn.k_norm.weight", {c.head_dim});
  if (c.is_moe_layer(index)) {
    add_experts(list, c, ours, file);
  } else {
    same(".mlp.gate_proj.weight", {c.intermediate_size, D});
    same(".mlp.up_proj.weight", {c.intermediate_size, D});
    same(".mlp.down_proj.weight", {D, c.intermediate_size});
  }
  same(".input_layernorm.weight", {D});
  same(".post_attention_layernorm.weight", {D});
}

void add_mlp1(SourceList& list, int64_t wide, int64_t D) {
  auto name = [&](const char* ours, const char* hf) {
    return list.hf() ? list.root() + "multi_modal_projector." + hf : std::string("mlp1.") + ours;
  };
  list.whole("mlp1.0.weight", name("0.weight", "layer_norm.weight"), {wide});
  list.whole("mlp1.0.bias", name("0.bias", "layer_norm.bias"), {wide});
  list.whole("mlp1.1.weight", name("1.weight", "linear_1.weight"), {D, wide});
  list.whole("mlp1.1.bias", name("1.bias", "linear_1.bias"), {D});
  list.whole("mlp1.3.weight", name("3.weight", "linear_2.weight"), {D, D});
  list.whole("mlp1.3.bias", name("3.bias", "linear_2.bias"), {D});
}

}  // namespace

std::vector<nn::WeightSource> weight_sources(const Config& config, nn::Layout layout) {
  std::vector<nn::WeightSource> sources;
  SourceList list(layout, sources);
  const LanguageConfig& c = config.language;
  const std::string decoder = "language_model.model.";
  const std::string prefix = list.decoder();
  add_vision(list, config.vision);
  list.whole(decoder + "embed_tokens.weight", prefix + "embed_tokens.weight",
             {c.vocab_size, c.hidden_size});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) add_decoder_layer(list, c, prefix, i);
  list.whole(decoder + "norm.weight", prefix + "norm.weight", {c.hidden_size});
  list.whole("language_model.lm_head.weight", list.lm_head(), {c.vocab_size, c.hidden_size});
  add_mlp1(list, 4 * config.vision.hidden_size, c.hidden_size);
  return sources;
}

}  // namespace shardloom::models::internvl3_5
