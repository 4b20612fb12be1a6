#include "shardloom/data/model_facts.h"

#include "shardloom/base/json.h"

namespace shardloom::data {
namespace {

class ConfigReader {
 public:
  explicit ConfigReader(const std::filesystem::path& path)
      : path_(path), root_(read_json_file(path, ExitCode::kData)) {
    if (!root_.is_object()) throw DataError("{}: not a JSON object", path_.string());
  }

  bool has(const char* key) const { return root_.contains(key) && !root_.at(key).is_null(); }

  // A number, or the first of a list of equal numbers.
  int64_t size(const char* section, const char* key) const {
    const Json& value = at(section, key);
    if (value.is_number_integer()) return value.get<int64_t>();
    const bool is_square = value.is_array() && value.size() == 2 && value[0].is_number_integer() &&
                           value[0] == value[1];
    if (!is_square) fail(section, key, "is neither a number nor a list of two equal numbers");
    return value[0].get<int64_t>();
  }

  double number(const char* key) const {
    const Json& value = at(nullptr, key);
    if (!value.is_number()) fail(nullptr, key, "is not a number");
    return value.get<double>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    return root_.contains(key) && root_.at(key).is_string() ? root_.at(key).get<std::string>()
                                                            : fallback;
  }

 private:
  const Json& at(const char* section, const char* key) const {
    const Json* object = &root_;
    if (section != nullptr) {
      if (!root_.contains(section) || !root_.at(section).is_object())
        fail(nullptr, section, "is missing");
      object = &root_.at(section);
    }
    if (!object->contains(key)) fail(section, key, "is missing");
    return object->at(key);
  }

  [[noreturn]] void fail(const char* section, const char* key, const char* what) const {
    throw DataError("{}: \"{}{}{}\" {}", path_.string(), section == nullptr ? "" : section,
                    section == nullptr ? "" : ".", key, what);
  }

  std::filesystem::path path_;
  Json root_;
};

}  // namespace

ModelFacts read_model_facts(const std::filesystem::path& folder) {
  const ConfigReader config(folder / "config.json");
  const bool is_hf_layout = config.has("text_config");
  ModelFacts facts;
  facts.model_folder = folder.string();
  facts.vocab_rows = config.size(is_hf_layout ? "text_config" : "llm_config", "vocab_size");
  facts.image_size = !is_hf_layout && config.has("force_image_size")
                         ? config.size(nullptr, "force_image_size")
                         : config.size("vision_config", "image_size");
  facts.patch_size = config.size("vision_config", "patch_size");
  facts.downsample_ratio = config.number("downsample_ratio");
  facts.conv_style = config.text("template", facts.conv_style);
  return facts;
}

}  // namespace shardloom::data
