// InternViT: the vision tower (OpenGVLab modeling_intern_vit.py).
//
// Legend: T tiles, N patches + 1 (class token first), C hidden size, h heads, d head size.
#pragma once

#include "shardloom/models/internvl3_5/config.h"
#include "shardloom/nn/attention.h"
#include "shardloom/nn/layers.h"

namespace shardloom::models::internvl3_5 {

// Patches by a convolution with kernel = stride = patch size, class token first, learned positions.
class VisionEmbeddings : public nn::Callable<VisionEmbeddings> {
 public:
  VisionEmbeddings(const VisionConfig& config, const at::TensorOptions& options);
  // [T, 3, H, W] with H = W a multiple of patch_size -> [T, N, C]. Positions are interpolated
  // (bicubic, fp32) when the grid is not the configured one.
  at::Tensor forward(const at::Tensor& pixel_values);

  at::Tensor class_embedding;     // [1, 1, C]
  at::Tensor position_embedding;  // [1, N, C]
  at::Tensor patch_weight;        // [C, 3, p, p]
  at::Tensor patch_bias;          // [C]

 private:
  at::Tensor positions(int64_t grid) const;

  class PatchEmbedding : public nn::Module {
   public:
    void bind(at::Tensor& weight, at::Tensor& bias) {
      register_parameter("weight", weight);
      register_parameter("bias", bias);
    }
  };

  VisionConfig config_;
  PatchEmbedding patch_embedding_;
};

class VisionAttention : public nn::Callable<VisionAttention> {
 public:
  VisionAttention(const VisionConfig& config, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x_TNC);

  nn::Linear qkv;
  nn::Linear proj;
  nn::Attention core{/*causal=*/false};

 private:
  int64_t num_heads_;
};

class VisionMlp : public nn::Callable<VisionMlp> {
 public:
  VisionMlp(const VisionConfig& config, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x);

  nn::Linear fc1;
  nn::Linear fc2;
};

// x + drop_path(attn(norm1(x)) * ls1), then x + drop_path(mlp(norm2(x)) * ls2).
class VisionLayer : public nn::Callable<VisionLayer> {
 public:
  VisionLayer(const VisionConfig& config, double drop_path_rate, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x_TNC);

  VisionAttention attn;
  nn::LayerNorm norm1;
  nn::LayerNorm norm2;
  VisionMlp mlp;
  at::Tensor ls1;  // [C]
  at::Tensor ls2;  // [C]

 private:
  nn::DropPath drop_path_;
};

class VisionEncoder : public nn::Callable<VisionEncoder> {
 public:
  VisionEncoder(const VisionConfig& config,
                int64_t layers_to_run,
                const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x_TNC);

  nn::ModuleList<VisionLayer> layers;

 private:
  int64_t layers_to_run_;  // hidden_states[select_layer] is the output of the layer before it
};

class VisionModel : public nn::Callable<VisionModel> {
 public:
  VisionModel(const Config& config, const at::TensorOptions& options);
  // [T, 3, H, W] -> hidden states [T, N, C] of the selected layer.
  at::Tensor forward(const at::Tensor& pixel_values);

  VisionEmbeddings embeddings;
  VisionEncoder encoder;
};

}  // namespace shardloom::models::internvl3_5
