#include "shardloom/config/settings.h"

#include "shardloom/config/schema.h"

namespace shardloom::config {
namespace {

void collect(const Section& section,
             const void* owner,
             const std::string& path,
             std::vector<Setting>& settings) {
  for (const Field& field : section.fields()) {
    if (field.effect == Effect::kUnused) continue;
    const std::string field_path = join_path(path, field.name);
    if (const void* nested = field.codec->section_target(field.get(owner))) {
      collect(*field.codec->section(), nested, field_path, settings);
    } else {
      settings.push_back({field_path, field.codec->dump(field.get(owner))});
    }
  }
}

}  // namespace

std::vector<Setting> settings_of(const TrainConfig& config) {
  std::vector<Setting> settings;
  collect(train_config_section(), &config, "", settings);
  return settings;
}

}  // namespace shardloom::config
