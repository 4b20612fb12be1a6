#include "shardloom/trainer/pretrain/model_hub.h"

#include <set>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/places.h"
#include "shardloom/data/model_facts.h"
#include "shardloom/trainer/assembly.h"

namespace shardloom {
namespace {

constexpr const char* kInternVL = "internvl3_5";

// architectures and model_type of the folder's config.json.
std::set<std::string> names_of_model(const std::string& folder) {
  const Json config =
      read_json_file(std::filesystem::path(folder) / "config.json", ExitCode::kCheckpoint);
  std::set<std::string> names;
  if (const auto list = config.find("architectures"); list != config.end() && list->is_array()) {
    for (const Json& name : *list) {
      if (name.is_string()) names.insert(name.get<std::string>());
    }
  }
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string())
    names.insert(type->get<std::string>());
  return names;
}

bool is_internvl(const std::set<std::string>& names) {
  for (const char* name :
       {"InternVLChatModel", "InternVLForConditionalGeneration", "internvl_chat", "internvl"}) {
    if (names.contains(name)) return true;
  }
  return false;
}

// The id under which the registry has the model of model.json.
std::string registered_id(const PretrainArgs& args) {
  const config::ModelConfig& model = args.loaded.config.model;
  const auto& registry = models::model_registry();
  if (registry.find(model.model_id) != nullptr) return model.model_id;
  if (is_internvl(names_of_model(model.model_name_or_path))) return kInternVL;
  throw ConfigError(
      "{}: model_id \"{}\" is not known{}, nor do architectures and model_type in {}/config.json "
      "name a known model; known: internvl, {}",
      config::place_in(args.model.sources, "model_id").str(), args.model.model_id,
      did_you_mean(args.model.model_id, registry.names()), model.model_name_or_path,
      join(registry.names(), ", "));
}

// What data.json says of tiles must be what the model takes.
void check_tile_sizes(const PretrainArgs& args) {
  const data::ModelFacts facts =
      data::read_model_facts(args.loaded.config.model.model_name_or_path);
  const auto faults = config::megatron::check_model_sizes(
      args, {facts.image_size, facts.patch_size, facts.downsample_ratio});
  if (!faults.empty()) throw ConfigError("{}", join(faults, "\n"));
}

}  // namespace

void ModelHub::register_model(const std::string& model_id, models::ModelFactory factory) {
  models::model_registry().add(model_id, std::move(factory));
}

std::unique_ptr<models::Model> ModelHub::build(const PretrainArgs& args) {
  config::TrainConfig config = args.loaded.config;
  config.model.model_id = registered_id(args);
  if (config.model.model_id == kInternVL) check_tile_sizes(args);
  return trainer::build_model(config, trainer::TokenIds::kFromTokenizer);
}

}  // namespace shardloom
