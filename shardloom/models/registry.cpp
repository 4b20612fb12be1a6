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

std::vector<std::string> Model::execution_order() {
  std::vector<std::string> names;
  for (const auto& [name, module] : named_modules()) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

std::vector<nn::WeightSource> Model::weight_sources(nn::Layout) const {
  std::vector<nn::WeightSource> sources;
  for (const auto& p : named_parameters())
    sources.push_back({p.name, {{p.name, p.tensor->sizes().vec()}}});
  return sources;
}

void init_random(Model& model) {
  for (const auto& p : model.named_parameters()) model.init_parameter(p.name, *p.tensor);
}

}  // namespace shardloom::models
