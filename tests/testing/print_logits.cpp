// print_logits MODEL_FOLDER BATCH.safetensors OUT.safetensors: fp32 logits of a batch (input_ids,
// attention_mask, pixel_values) for tools/check_export_with_transformers.py.
#include <cstdio>

#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "shardloom/models/model.h"
#include "shardloom/tokenizer/tokenizer.h"
#include "tests/testing/tensors.h"

int main(int argc, char** argv) {
  using namespace shardloom;
  if (argc != 4) {
    std::fputs("usage: print_logits MODEL_FOLDER BATCH.safetensors OUT.safetensors\n", stderr);
    return 2;
  }
  const auto tokenizer = tokenizer::Tokenizer::from_folder(argv[1]);
  models::BuildOptions options;
  options.folder = argv[1];
  options.tensor_options = at::TensorOptions().dtype(at::kFloat);
  options.token_id = [&](const std::string& token) -> std::optional<int64_t> {
    return tokenizer.id(token);
  };
  auto model = models::model_registry().get("internvl3_5")(options);
  checkpoint::load_hf_weights(checkpoint::HfFolder::open(argv[1]),
                              [&](nn::Layout l) { return model->weight_sources(l); },
                              checkpoint::whole_tensors(model->named_parameters()), {});
  models::TensorMap batch = testing::load_safetensors(argv[2]);
  batch["image_flags"] = at::ones({batch["pixel_values"].size(0)}, at::kLong);
  const at::NoGradGuard no_grad;
  const at::Tensor logits = model->compute_logits(batch).contiguous();
  checkpoint::SafetensorsWriter writer(argv[3],
                                       {{"logits", checkpoint::DType::kF32, logits.sizes().vec()}});
  writer.write("logits", {static_cast<const char*>(logits.const_data_ptr()), logits.nbytes()});
  writer.finish();
  return 0;
}
