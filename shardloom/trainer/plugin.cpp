#include "shardloom/trainer/plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "shardloom/config/not_built.h"

namespace shardloom::trainer {
namespace {

void load_library(const std::string& path) {
  // dlopen searches the system's folders for a name without a slash; here a path is always meant.
  const std::string file = std::filesystem::absolute(path).string();
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw ConfigError("training.plugin: cannot load {}: {}", path, ::dlerror());
  using Register = void (*)(PluginRegistries&);
  const auto entry = reinterpret_cast<Register>(::dlsym(library, "shardloom_plugin"));
  if (entry == nullptr) {
    throw ConfigError(
        "training.plugin: {} has no function extern \"C\" void "
        "shardloom_plugin(shardloom::PluginRegistries&)",
        path);
  }
  PluginRegistries registries{models::model_registry(), data::dataset_registry()};
  entry(registries);
}

}  // namespace

void load_plugins(const std::vector<std::string>& plugins) {
  for (const std::string& plugin : plugins) {
    if (!config::is_builtin_plugin(plugin)) load_library(plugin);
  }
}

}  // namespace shardloom::trainer
