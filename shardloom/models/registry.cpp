#include "shardloom/models/internvl3_5/model.h"
#include "shardloom/models/model.h"

namespace shardloom::models {

Registry<ModelFactory>& model_registry() {
  static Registry<ModelFactory>* registry = [] {
    auto* models = new Registry<ModelFactory>("model.model_id");
    models->add("internvl3_5", internvl3_5::build);
    return models;
  }();
  return *registry;
}

}  // namespace shardloom::models
