#include "shardloom/models/internvl3_5/model.h"

namespace shardloom::models::internvl3_5 {
namespace {

constexpr double kMlp1Eps = 1e-5;  // torch's LayerNorm default, unlike the vision tower's 1e-6
constexpr const char* kImageToken = "<IMG_CONTEXT>";

const at::Tensor& array(const TensorMap& batch, const std::string& name) {
  const auto found = batch.find(name);
  if (found == batch.end()) throw DataError("internvl3_5: the batch has no array \"{}\"", name);
  return found->second;
}

}  // namespace

Mlp1::Mlp1(int64_t in_features, int64_t hidden_size, const at::TensorOptions& options)
    : norm(in_features, kMlp1Eps, options),
      linear1(in_features, hidden_size, /*bias=*/true, options),
      linear2(hidden_size, hidden_size, /*bias=*/true, options) {
  register_module("0", norm);
  register_module("1", linear1);
  register_module("3", linear2);
}

at::Tensor Mlp1::forward(const at::Tensor& x) { return linear2(at::gelu(linear1(norm(x)))); }

at::Tensor pixel_shuffle(const at::Tensor& x_TggC, bool v2) {
  const int64_t T = x_TggC.size(0), half = x_TggC.size(1) / 2, C = x_TggC.size(3);
  const at::Tensor blocks = x_TggC.view({T, half, 2, half, 2, C});
  return (v2 ? blocks.permute({0, 1, 3, 2, 4, 5}) : blocks.permute({0, 3, 1, 2, 4, 5}))
      .reshape({T, half, half, 4 * C});
}

InternVL::InternVL(const Config& config,
                   int64_t image_token_id,
                   bool keep_router_logits,
                   const at::TensorOptions& options)
    : vision_model(config, options),
      mlp1(4 * config.vision.hidden_size, config.language.hidden_size, options),
      language_model(config.language, keep_router_logits, options),
      config_(config),
      image_token_id_(image_token_id) {
  register_module("vision_model", vision_model);
  register_module("language_model", language_model);
  register_module("mlp1", mlp1);
}

at::Tensor InternVL::image_features(const TensorMap& batch) {
  // Dummy tiles of text-only samples are encoded too: the empty slice below gives every vision
  // parameter a zero gradient.
  const at::Tensor hidden = vision_model(array(batch, "pixel_values"));
  const int64_t tiles = hidden.size(0), patches = hidden.size(1) - 1, channels = hidden.size(2);
  const auto grid = static_cast<int64_t>(std::sqrt(static_cast<double>(patches)));
  const at::Tensor shuffled =
      pixel_shuffle(hidden.narrow(1, 1, patches).reshape({tiles, grid, grid, channels}),
                    config_.pixel_shuffle_v2);
  const at::Tensor features = mlp1(shuffled.flatten(1, 2));
  const at::Tensor real_tiles =
      at::nonzero(array(batch, "image_flags").reshape({-1}) == 1).squeeze(1);
  return features.index_select(0, real_tiles).flatten(0, 1);
}

DecoderOutput InternVL::hidden_states(const TensorMap& batch) {
  const at::Tensor& input_ids = array(batch, "input_ids");
  const at::Tensor embeds_BSD = language_model.model.embed_tokens(input_ids);
  const at::Tensor features = image_features(batch);
  const at::Tensor places = at::nonzero(input_ids.reshape({-1}) == image_token_id_).squeeze(1);
  if (places.size(0) != features.size(0)) {
    throw DataError(
        "the text has {} <IMG_CONTEXT> tokens but the pictures give {} features ({} a tile)",
        places.size(0), features.size(0), config_.image_tokens());
  }
  const at::Tensor merged =
      embeds_BSD.flatten(0, 1).index_copy(0, places, features.to(embeds_BSD.scalar_type()));
  return language_model.model(merged.view(embeds_BSD.sizes()));
}

at::Tensor InternVL::forward_logits(const TensorMap& batch) {
  return language_model.lm_head(hidden_states(batch).hidden).to(at::kFloat);
}

ModelOutput InternVL::forward_loss(const TensorMap& batch, const LossTargets& targets) {
  const DecoderOutput decoded = hidden_states(batch);
  // Only rows with a target go through the head: the others have weight 0.
  const at::Tensor rows = at::nonzero(targets.targets.reshape({-1}).ge(0)).squeeze(1);
  const at::Tensor hidden = decoded.hidden.flatten(0, 1).index_select(0, rows);
  ModelOutput out;
  out.loss = language_model.lm_head.loss(
      hidden, {.targets = targets.targets.reshape({-1}).index_select(0, rows),
               .weights = targets.weights.reshape({-1}).index_select(0, rows)});
  if (!decoded.router_logits.empty()) {
    out.router = ops::router_sums(
        decoded.router_logits, config_.language.num_experts_per_tok,
        targets.real_tokens.defined() ? targets.real_tokens.reshape({-1}) : at::Tensor());
  }
  return out;
}

void InternVL::init_parameter(const std::string& name, const at::Tensor& value) const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const std::string leaf = name.substr(name.rfind('.') + 1);
  const bool vision = name.rfind("vision_model.", 0) == 0;
  if (leaf == "bias") {
    value.zero_();
  } else if (leaf == "ls1" || leaf == "ls2") {
    value.fill_(config_.vision.initializer_factor);
  } else if (value.dim() == 1) {
    value.fill_(1.0);  // norms
  } else {
    value.normal_(0.0,
                  vision ? config_.vision.initializer_range : config_.language.initializer_range);
  }
}

TensorMap InternVL::idle_batch() const {
  const int64_t side = config_.vision.image_size;
  return {{"input_ids", at::zeros({1, 1}, at::kLong)},
          {"attention_mask", at::ones({1, 1}, at::kLong)},
          {"pixel_values", at::zeros({1, 3, side, side})},
          {"image_flags", at::zeros({1}, at::kLong)}};
}

std::vector<std::string> InternVL::execution_order() {
  // Registration follows the file; the projector runs before the decoder that takes its output.
  std::vector<std::string> order = Model::execution_order();
  std::stable_partition(order.begin(), order.end(), [](const std::string& name) {
    return name.rfind("language_model", 0) != 0;
  });
  return order;
}

std::vector<std::string> InternVL::called_modules() {
  return {"language_model.model.embed_tokens", "language_model.model", "language_model.lm_head"};
}

// Vision is joined before pixel shuffle, which mixes rows; the decoder is cut after the picture's
// features stand in the text.
SequenceSeams InternVL::sequence_seams() {
  SequenceSeams seams;
  seams.split_inputs = {"vision_model.encoder", "language_model.model"};
  seams.gather_outputs = {"vision_model.encoder"};
  for (const auto& [name, module] : named_modules()) {
    if (dynamic_cast<const nn::Attention*>(module) != nullptr) seams.attention.push_back(name);
  }
  return seams;
}

std::vector<std::string> InternVL::expert_modules() {
  std::vector<std::string> names;
  for (const auto& [name, module] : named_modules()) {
    if (dynamic_cast<const Experts*>(module) != nullptr) names.push_back(name);
  }
  return names;
}

std::optional<ModelFacts> InternVL::facts() const {
  const int64_t grid = config_.vision.grid();
  return ModelFacts{.heads = config_.language.num_attention_heads,
                    .kv_heads = config_.language.num_key_value_heads,
                    .vision_heads = config_.vision.num_attention_heads,
                    .vision_tokens = grid * grid + 1,
                    .experts = config_.language.num_experts,
                    .top_k = config_.language.num_experts_per_tok};
}

std::vector<nn::WeightSource> InternVL::weight_sources(nn::Layout layout) const {
  return internvl3_5::weight_sources(config_, layout);
}

bool InternVL::may_ignore(const std::string& file_key) const {
  for (const char* decoder : {"language_model.model.layers.", "model.language_model.layers."}) {
    if (file_key.rfind(decoder, 0) == 0) {
      return std::atoll(file_key.c_str() + std::string_view(decoder).size()) >=
             config_.language.num_hidden_layers;
    }
  }
  return false;
}

std::unique_ptr<models::Model> build(const BuildOptions& options) {
  const Config config = read_config(options.folder, options.num_hidden_layers.value_or(0));
  int64_t image_token = config.image_token_id;
  if (options.token_id) {
    const auto found = options.token_id(kImageToken);
    if (!found) {
      throw DataError("{}: the tokenizer has no token {}, which InternVL3.5 needs for pictures",
                      options.folder.string(), kImageToken);
    }
    if (image_token >= 0 && image_token != *found) {
      throw CheckpointError(
          "{}: config.json says image_token_id {} but the tokenizer gives {} for {}",
          options.folder.string(), image_token, *found, kImageToken);
    }
    image_token = *found;
  }
  return std::make_unique<InternVL>(config, image_token,
                                    options.keep_router_logits && config.language.num_experts > 0,
                                    options.tensor_options);
}

}  // namespace shardloom::models::internvl3_5
