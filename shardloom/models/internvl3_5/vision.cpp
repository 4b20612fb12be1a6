#include "shardloom/models/internvl3_5/vision.h"

#include "shardloom/ops/linear.h"

namespace shardloom::models::internvl3_5 {

VisionEmbeddings::VisionEmbeddings(const VisionConfig& config, const at::TensorOptions& options)
    : class_embedding(at::empty({1, 1, config.hidden_size}, options)),
      position_embedding(
          at::empty({1, config.grid() * config.grid() + 1, config.hidden_size}, options)),
      patch_weight(
          at::empty({config.hidden_size, config.num_channels, config.patch_size, config.patch_size},
                    options)),
      patch_bias(at::empty({config.hidden_size}, options)),
      config_(config) {
  register_parameter("class_embedding", class_embedding);
  register_parameter("position_embedding", position_embedding);
  patch_embedding_.bind(patch_weight, patch_bias);
  register_module("patch_embedding", patch_embedding_);
}

at::Tensor VisionEmbeddings::positions(int64_t grid) const {
  if (grid == config_.grid()) return position_embedding;
  const int64_t old = config_.grid();
  const int64_t channels = config_.hidden_size;
  const at::Tensor patches =
      position_embedding.narrow(1, 1, old * old).to(at::kFloat).view({1, old, old, channels});
  const at::Tensor resized =
      at::upsample_bicubic2d(patches.permute({0, 3, 1, 2}), {grid, grid}, /*align_corners=*/false);
  return at::cat({position_embedding.narrow(1, 0, 1),
                  resized.flatten(2).transpose(1, 2).to(position_embedding.scalar_type())},
                 1);
}

at::Tensor VisionEmbeddings::forward(const at::Tensor& pixel_values) {
  const int64_t tiles = pixel_values.size(0);
  const int64_t p = config_.patch_size;
  const int64_t grid = pixel_values.size(2) / p;
  const int64_t channels = config_.num_channels;
  // The convolution does not overlap, so it is a product with patches laid out as (channel, row,
  // column).
  const at::Tensor patches = pixel_values.to(patch_weight.scalar_type())
                                 .view({tiles, channels, grid, p, grid, p})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({tiles, grid * grid, channels * p * p});
  const at::Tensor embedded = ops::linear(patches, patch_weight.flatten(1), patch_bias);
  return at::cat({class_embedding.expand({tiles, 1, config_.hidden_size}), embedded}, 1) +
         positions(grid);
}

VisionAttention::VisionAttention(const VisionConfig& config, const at::TensorOptions& options)
    : qkv(config.hidden_size, 3 * config.hidden_size, config.qkv_bias, options),
      proj(config.hidden_size, config.hidden_size, /*bias=*/true, options),
      num_heads_(config.num_attention_heads) {
  register_module("qkv", qkv);
  register_module("proj", proj);
  register_module("core", core);
}

at::Tensor VisionAttention::forward(const at::Tensor& x_TNC) {
  const int64_t T = x_TNC.size(0), N = x_TNC.size(1), C = x_TNC.size(2);
  const auto qkv_TNhd = qkv(x_TNC).view({T, N, 3, num_heads_, C / num_heads_}).unbind(2);
  return proj(core(qkv_TNhd[0], qkv_TNhd[1], qkv_TNhd[2]).reshape({T, N, C}));
}

VisionMlp::VisionMlp(const VisionConfig& config, const at::TensorOptions& options)
    : fc1(config.hidden_size, config.intermediate_size, /*bias=*/true, options),
      fc2(config.intermediate_size, config.hidden_size, /*bias=*/true, options) {
  register_module("fc1", fc1);
  register_module("fc2", fc2);
}

at::Tensor VisionMlp::forward(const at::Tensor& x) { return fc2(at::gelu(fc1(x))); }

VisionLayer::VisionLayer(const VisionConfig& config,
                         double drop_path_rate,
                         const at::TensorOptions& options)
    : attn(config, options),
      norm1(config.hidden_size, config.layer_norm_eps, options),
      norm2(config.hidden_size, config.layer_norm_eps, options),
      mlp(config, options),
      ls1(at::empty({config.hidden_size}, options)),
      ls2(at::empty({config.hidden_size}, options)),
      drop_path_(drop_path_rate) {
  register_parameter("ls1", ls1);
  register_parameter("ls2", ls2);
  register_module("attn", attn);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("mlp", mlp);
  register_module("drop_path", drop_path_);
}

at::Tensor VisionLayer::forward(const at::Tensor& x_TNC) {
  const at::Tensor h = x_TNC + drop_path_(attn(norm1(x_TNC)) * ls1);
  return h + drop_path_(mlp(norm2(h)) * ls2);
}

VisionEncoder::VisionEncoder(const VisionConfig& config,
                             int64_t layers_to_run,
                             const at::TensorOptions& options)
    : layers_to_run_(layers_to_run) {
  const int64_t count = config.num_hidden_layers;
  for (int64_t i = 0; i < count; ++i) {
    const double rate =
        count > 1 ? config.drop_path_rate * static_cast<double>(i) / static_cast<double>(count - 1)
                  : 0.0;
    layers.emplace_back(config, rate, options);
  }
  register_module("layers", layers);
}

at::Tensor VisionEncoder::forward(const at::Tensor& x_TNC) {
  at::Tensor h = x_TNC;
  for (int64_t i = 0; i < layers_to_run_; ++i) h = layers[i](h);
  return h;
}

VisionModel::VisionModel(const Config& config, const at::TensorOptions& options)
    : embeddings(config.vision, options),
      encoder(config.vision,
              config.select_layer < 0 ? config.vision.num_hidden_layers + 1 + config.select_layer
                                      : config.select_layer,
              options) {
  register_module("embeddings", embeddings);
  register_module("encoder", encoder);
}

at::Tensor VisionModel::forward(const at::Tensor& pixel_values) {
  return encoder(embeddings(pixel_values));
}

}  // namespace shardloom::models::internvl3_5
