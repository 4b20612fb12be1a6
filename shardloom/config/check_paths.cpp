#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "shardloom/config/load.h"
#include "shardloom/config/not_built.h"

namespace shardloom::config {
namespace {

namespace fs = std::filesystem;

enum class Expected { kFile, kFolder };

class PathChecker {
 public:
  explicit PathChecker(const LoadedConfig& loaded) : loaded_(loaded) {}

  std::vector<std::string> run() {
    const TrainConfig& config = loaded_.config;
    check("model.model_name_or_path", config.model.model_name_or_path, Expected::kFolder);
    check_model_config(config.model.model_name_or_path);
    if (config.training.load) check("training.load", *config.training.load, Expected::kFolder);
    check_dataset("data.dataset_param", config.data.dataset_param);
    if (config.data.val_dataset_param && config.training.val_interval > 0) {
      check_dataset("data.val_dataset_param", *config.data.val_dataset_param);
    }
    for (size_t i = 0; i < config.training.plugin.size(); ++i) {
      const std::string& plugin = config.training.plugin[i];
      if (!is_builtin_plugin(plugin))
        check(fmt::format("training.plugin[{}]", i), plugin, Expected::kFile);
    }
    return problems_.errors();
  }

 private:
  void check_model_config(const std::string& folder) {
    std::error_code ignored;
    if (fs::is_directory(folder, ignored) &&
        !fs::exists(fs::path(folder) / "config.json", ignored)) {
      report("model.model_name_or_path",
             fmt::format("{} has no config.json, so it is no model folder",
                         fs::absolute(folder, ignored).string()));
    }
  }

  void check_dataset(const std::string& path, const DatasetParam& dataset) {
    const auto& basic = dataset.basic_parameters;
    for (size_t i = 0; i < basic.dataset.size(); ++i) {
      check(fmt::format("{}.basic_parameters.dataset[{}]", path, i), basic.dataset[i],
            Expected::kFile);
    }
    const std::string folder = path + ".basic_parameters.dataset_dir";
    if (loaded_.sources.contains(folder)) check(folder, basic.dataset_dir, Expected::kFolder);
    const auto& tokenizer = dataset.preprocess_parameters.model_name_or_path;
    if (tokenizer)
      check(path + ".preprocess_parameters.model_name_or_path", *tokenizer, Expected::kFolder);
  }

  void check(const std::string& key, const std::string& path, Expected expected) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    const char* const kind = expected == Expected::kFile ? "file" : "folder";
    if (!fs::exists(status)) {
      report(key, fmt::format("the {} {} does not exist{}", kind,
                              fs::absolute(path, ignored).string(), hint(key, path)));
    } else if (fs::is_directory(status) != (expected == Expected::kFolder)) {
      report(key, fmt::format("{} is not a {}", fs::absolute(path, ignored).string(), kind));
    }
  }

  static std::string hint(const std::string& key, const std::string& path) {
    if (path.find('$') != std::string::npos || path.starts_with('~')) {
      return "; $NAME and ~ are taken literally, so write the path out or give it as an override, "
             "where the shell expands it";
    }
    const bool is_hub_name = std::count(path.begin(), path.end(), '/') == 1 && path[0] != '/' &&
                             path[0] != '.' && key.ends_with("model_name_or_path");
    if (is_hub_name) return "; nothing is downloaded: give the folder of the downloaded model";
    return "";
  }

  void report(const std::string& key, const std::string& message) {
    problems_.error(loaded_.place(key), fmt::format("{}: {}", key, message));
  }

  const LoadedConfig& loaded_;
  Problems problems_;
};

}  // namespace

std::vector<std::string> check_paths(const LoadedConfig& loaded) {
  return PathChecker(loaded).run();
}

}  // namespace shardloom::config
