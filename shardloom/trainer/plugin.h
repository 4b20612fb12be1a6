// Plug-ins: shared libraries that add models and data sets to the registries (training.plugin).
#pragma once

#include <string>
#include <vector>

#include "shardloom/data/dataset.h"
#include "shardloom/models/model.h"

namespace shardloom {

// What a plug-in receives. It exports one function:
//   extern "C" void shardloom_plugin(shardloom::PluginRegistries& registries);
struct PluginRegistries {
  Registry<models::ModelFactory>& models;
  Registry<data::DatasetFactory>& datasets;
};

namespace trainer {

// Loads each entry: a path to a shared library, or one of the reference's package paths of the
// built-in internvl3_5 plug-ins (which are accepted and need no loading). Throws ConfigError with
// the loader's message.
void load_plugins(const std::vector<std::string>& plugins);

}  // namespace trainer
}  // namespace shardloom
