#include "shardloom/config/suggest.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardloom/base/strings.h"

namespace shardloom::config {
namespace {

void collect(const Section& section,
             const void* defaults,
             const std::string& path,
             std::vector<KnownKey>& keys) {
  for (const Field& field : section.fields()) {
    const std::string field_path = join_path(path, field.name);
    keys.push_back({field_path, &field});
    if (field.effect == Effect::kUnused) continue;
    const void* nested = field.codec->section_target(field.get(defaults));
    if (nested != nullptr) collect(*field.codec->section(), nested, field_path, keys);
  }
}

// Whether the section belongs to the configuration of the YAML path; others (config/megatron) have
// keys of their own.
bool is_train_config(const Section& section) {
  const auto& keys = known_keys();
  return &section == &train_config_section() ||
         std::any_of(keys.begin(), keys.end(),
                     [&](const KnownKey& key) { return key.field->codec->section() == &section; });
}

// Sections that have a key of this name; those below `path` come first, and then stand alone.
std::vector<std::string> homes_of(const std::string& name, const std::string& path) {
  std::vector<std::string> below;
  std::vector<std::string> elsewhere;
  for (const KnownKey& key : known_keys()) {
    if (key.field->name != name || key.field->effect == Effect::kUnused || key.parent() == path)
      continue;
    const bool is_below = path.empty() || key.parent().starts_with(path + ".");
    (is_below ? below : elsewhere).push_back(key.parent().empty() ? "the top level" : key.parent());
  }
  return below.empty() ? elsewhere : below;
}

std::string nearest_elsewhere(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownKey& key : known_keys()) {
    if (key.field->effect != Effect::kUnused) names.push_back(key.field->name);
  }
  const auto best = nearest(name, names);
  if (!best) return "";
  for (const KnownKey& key : known_keys()) {
    if (key.field->name == *best) return fmt::format(" (did you mean {}?)", key.path);
  }
  return "";
}

}  // namespace

std::string KnownKey::parent() const {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

const std::vector<KnownKey>& known_keys() {
  static const std::vector<KnownKey> keys = [] {
    std::vector<KnownKey> all;
    const TrainConfig defaults;
    collect(train_config_section(), &defaults, "", all);
    return all;
  }();
  return keys;
}

const std::map<std::string, std::string>& foreign_names() {
  static const std::map<std::string, std::string> names = {
      {"learning_rate", "training.lr"},
      {"min_lr", "training.lr_min"},
      {"lr_scheduler_type", "training.lr_decay_style"},
      {"warmup_ratio", "training.lr_warmup_ratio"},
      {"warmup_steps", "training.lr_warmup_iters"},
      {"lr_warmup_steps", "training.lr_warmup_iters"},
      {"max_grad_norm", "training.clip_grad"},
      {"per_device_train_batch_size", "training.micro_batch_size"},
      {"train_micro_batch_size_per_gpu", "training.micro_batch_size"},
      {"batch_size", "training.micro_batch_size"},
      {"num_train_epochs", "training.train_epochs"},
      {"output_dir", "training.save"},
      {"resume_from_checkpoint", "training.load"},
      {"logging_steps", "training.log_interval"},
      {"logging_dir", "training.metrics_dir"},
      {"eval_steps", "training.val_interval"},
      {"save_total_limit", "training.keep_last"},
      {"gradient_checkpointing", "features.recompute"},
      {"bf16", "parallel.fsdp_plan.param_dtype"},
      {"fp16", "parallel.fsdp_plan.param_dtype"},
      {"context_parallel_size", "parallel.ulysses_parallel_size"},
      {"sequence_parallel_size", "parallel.ulysses_parallel_size"},
      {"max_length", "data.dataset_param.basic_parameters.cutoff_len"},
      {"max_seq_length", "data.dataset_param.basic_parameters.cutoff_len"},
      {"seq_length", "data.dataset_param.basic_parameters.cutoff_len"},
      {"dataloader_num_workers", "data.dataloader_param.num_workers"},
  };
  return names;
}

std::string unknown_key_message(const Section& section,
                                const std::string& path,
                                const YamlEntry& entry) {
  const bool top = path.empty();
  if (!is_train_config(section)) {
    return fmt::format("unknown key {}{}", join_path(path, entry.key),
                       did_you_mean(entry.key, section.names()));
  }
  const std::string full = join_path(path, entry.key);
  const std::vector<std::string> homes = homes_of(entry.key, path);
  if (!homes.empty()) {
    return fmt::format("unknown {}key {} (belongs under {})", top ? "top-level " : "", full,
                       join(homes, " or "));
  }
  if (const auto here = foreign_names().find(entry.key); here != foreign_names().end())
    return fmt::format("unknown key {}; here it is {}", full, here->second);
  const std::string hint = did_you_mean(entry.key, section.names());
  if (top && entry.value.kind == YamlNode::Kind::kMap) {
    return fmt::format("unknown section {}; all its keys would be lost{}", full,
                       hint.empty()
                           ? fmt::format(" (sections: {}; blocks for anchors are named x-...)",
                                         join(section.names(), ", "))
                           : hint);
  }
  return fmt::format("unknown {}key {}{}", top ? "top-level " : "", full,
                     hint.empty() ? nearest_elsewhere(entry.key) : hint);
}

}  // namespace shardloom::config
