// The models of the Megatron-style path: ModelHub and TransformersModel of MindSpeed-MM
// (mindspeed_mm/models/transformers/modelhub.py, transformers_model.py).
#pragma once

#include <memory>
#include <string>

#include "shardloom/config/megatron/translate.h"
#include "shardloom/models/model.h"
#include "shardloom/trainer/pretrain/fsdp2_mixin.h"

namespace shardloom {

// All inputs of a run: flags, fsdp2_config.yaml, model.json, data.json.
using PretrainArgs = config::megatron::MegatronConfig;

class ModelHub {
 public:
  // Makes `model_id` of model.json known. Throws ConfigError when it is taken.
  static void register_model(const std::string& model_id, models::ModelFactory factory);
  // The model of model.json on the meta device: by model_id, else by architectures or model_type of
  // the config.json in init_from_hf_path. Throws ConfigError that lists the known ids.
  static std::unique_ptr<models::Model> build(const PretrainArgs& args);
};

// The model of model.json, sharded as fsdp2_config.yaml says.
class TransformersModel : public FSDP2Mixin {
 public:
  explicit TransformersModel(const PretrainArgs& args) : model_(ModelHub::build(args)) {}
  models::Model& model() override { return *model_; }

 private:
  std::unique_ptr<models::Model> model_;
};

}  // namespace shardloom
