// The built-in data sets: one line each.
#include "shardloom/data/datasets/internvl3_5.h"
#include "shardloom/data/model_facts.h"

namespace shardloom::data {
namespace {

std::unique_ptr<Dataset> make_internvl3_5(const config::DatasetParam& param,
                                          const std::string& model_folder) {
  return std::make_unique<InternVL35Dataset>(param, read_model_facts(model_folder));
}

}  // namespace

Registry<DatasetFactory>& dataset_registry() {
  static Registry<DatasetFactory> registry = [] {
    Registry<DatasetFactory> list("data.dataset_param.dataset_type");
    list.add("internvl3_5", make_internvl3_5);
    return list;
  }();
  return registry;
}

}  // namespace shardloom::data
