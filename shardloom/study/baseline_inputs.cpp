#include "shardloom/study/baseline_inputs.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <set>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/megatron/translate.h"
#include "shardloom/study/plan.h"

namespace shardloom::study {
namespace {

std::string text(const OrderedJson& json) { return json.dump(2) + "\n"; }

// The name by which the Megatron-style path knows a model.
std::string model_id(const std::string& id) { return id == "internvl3_5" ? "internvl" : id; }

// raw is the YAML path's name for the same mean over all targets.
std::string loss_type(const std::string& type) { return type == "raw" ? "default" : type; }

std::string model_json(const config::TrainConfig& c) {
  OrderedJson json;
  json["model_id"] = model_id(c.model.model_id);
  json["init_from_hf_path"] = c.model.model_name_or_path;
  if (c.model.num_hidden_layers) json["num_hidden_layers"] = *c.model.num_hidden_layers;
  if (c.model.random_init) json["random_init"] = true;
  if (!c.model.freeze.empty()) json["freeze"] = c.model.freeze;
  json["loss_cfg"] = {{"loss_type", loss_type(c.features.loss_cfg.loss_type)},
                      {"router_aux_loss_coef", c.features.loss_cfg.router_aux_loss_coef}};
  return text(json);
}

OrderedJson data_sources(const config::BasicParameters& basic) {
  OrderedJson sources = OrderedJson::array();
  for (const std::string& file : basic.dataset) {
    sources.push_back(
        {{"data_path", file}, {"data_folder", basic.dataset_dir}, {"repeat_time", 1}});
  }
  return sources.size() == 1 ? sources[0] : sources;
}

std::string data_json(const config::TrainConfig& c) {
  const config::DatasetParam& set = c.data.dataset_param;
  const config::DataloaderParam& loader = c.data.dataloader_param;
  OrderedJson json;
  OrderedJson& d = json["dataset_param"];
  d["dataset_type"] = set.dataset_type == "internvl3_5" ? "multimodal" : set.dataset_type;
  d["basic_parameters"] = data_sources(set.basic_parameters);
  d["tokenizer_config"]["from_pretrained"] =
      set.preprocess_parameters.model_name_or_path.value_or(c.model.model_name_or_path);
  d["template_name"] = set.conv_style;
  if (set.image_size) d["image_size"] = *set.image_size;
  d["group_by_length"] = set.pad_to == "longest";
  d["use_thumbnail"] = set.use_thumbnail;
  d["min_dynamic_patch"] = set.min_dynamic_patch;
  d["max_dynamic_patch"] = set.max_dynamic_patch;
  if (set.on_bad_sample != "stop") d["on_bad_sample"] = set.on_bad_sample;
  OrderedJson& l = json["dataloader_param"];
  l["dataloader_mode"] = loader.dataloader_mode;
  l["sampler_type"] = loader.sampler_type;
  l["shuffle"] = loader.shuffle;
  l["shuffle_seed"] = loader.shuffle_seed;
  l["drop_last"] = loader.drop_last;
  l["pin_memory"] = loader.pin_memory;
  l["collate_param"]["model_name"] = "internvl";
  return text(json);
}

std::string fsdp2_yaml(const config::TrainConfig& c) {
  const config::ParallelConfig& p = c.parallel;
  std::string yaml;
  const auto line = [&yaml](const char* key, const std::string& value) {
    yaml += fmt::format("{}: {}\n", key, value);
  };
  const auto truth = [&line](const char* key, bool value) { line(key, value ? "true" : "false"); };
  const auto modules = [&yaml](const char* key, const config::Patterns& patterns) {
    if (patterns.empty()) return;
    yaml += fmt::format("{}:\n", key);
    for (const std::string& pattern : patterns) yaml += fmt::format("  - \"{}\"\n", pattern);
  };
  line("sharding_size", fmt::format("{}", p.fully_shard_parallel_size.value_or(1)));
  modules("sub_modules_to_wrap", p.fsdp_plan.apply_modules);
  modules("ignored_modules", p.fsdp_plan.ignored_modules);
  truth("reshard_after_forward", p.fsdp_plan.reshard_after_forward);
  if (p.fsdp_plan.param_dtype) line("param_dtype", *p.fsdp_plan.param_dtype);
  if (p.fsdp_plan.reduce_dtype) line("reduce_dtype", *p.fsdp_plan.reduce_dtype);
  if (p.fsdp_plan.output_dtype) line("output_dtype", *p.fsdp_plan.output_dtype);
  truth("cast_forward_inputs", p.fsdp_plan.cast_forward_inputs);
  if (p.fsdp_plan.cpu_offload) truth("offload_to_cpu", true);
  line("num_to_forward_prefetch", fmt::format("{}", p.fsdp_plan.num_to_forward_prefetch));
  line("num_to_backward_prefetch", fmt::format("{}", p.fsdp_plan.num_to_backward_prefetch));
  if (p.expert_parallel_size > 1) {
    line("expert_parallel_size", fmt::format("{}", p.expert_parallel_size));
    modules("moe_modules", p.ep_plan.apply_modules);
  }
  return yaml;
}

class Flags {
 public:
  void add(const std::string& flag) { words_.push_back("--" + flag); }
  template <typename Value>
  void add(const std::string& flag, const Value& value) {
    add(flag);
    words_.push_back(fmt::format("{}", value));
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

std::vector<std::string> settings(const config::TrainConfig& c) {
  const config::TrainingConfig& t = c.training;
  Flags f;
  f.add("ckpt-format", "torch_dcp");
  f.add("untie-embeddings-and-output-weights");
  f.add("micro-batch-size", t.micro_batch_size);
  f.add("global-batch-size", *t.global_batch_size);
  f.add("seq-length", c.data.dataset_param.basic_parameters.cutoff_len);
  f.add("train-iters", t.train_iters);
  f.add("num-workers", c.data.dataloader_param.num_workers);
  f.add("seed", t.seed);
  f.add("lr", t.lr);
  f.add("min-lr", t.lr_min);
  f.add("lr-decay-style", t.lr_decay_style);
  if (t.lr_decay_ratio != 1.0)
    f.add("lr-decay-iters", std::llround(t.lr_decay_ratio * static_cast<double>(t.train_iters)));
  if (t.lr_warmup_iters) {
    f.add("lr-warmup-iters", *t.lr_warmup_iters);
  } else {
    // Of the decay there, of all steps here.
    f.add("lr-warmup-fraction", t.lr_warmup_ratio / t.lr_decay_ratio);
  }
  if (t.lr_start != 0) f.add("lr-warmup-init", t.lr_start);
  f.add("weight-decay", t.weight_decay);
  f.add("clip-grad", t.clip_grad);
  f.add("adam-beta1", t.adam_beta1);
  f.add("adam-beta2", t.adam_beta2);
  f.add("adam-eps", t.adam_eps);
  if (t.init_model_with_meta_device) f.add("init-model-with-meta-device");
  if (t.load) f.add("load", *t.load);
  if (t.no_load_optim) f.add("no-load-optim");
  if (t.no_load_rng) f.add("no-load-rng");
  f.add("eval-interval", 0);
  f.add("log-interval", 1);
  return f.take();
}

// A dump as "section.key" -> value, in the order of the dump.
std::vector<std::pair<std::string, std::string>> flatten(const std::string& dump) {
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<std::string> sections;
  for (const std::string& line : split(dump, '\n')) {
    const size_t indent = line.find_first_not_of(' ');
    const size_t colon = line.find(':');
    if (indent == std::string::npos || colon == std::string::npos) continue;
    sections.resize(indent / 2);
    sections.push_back(line.substr(indent, colon - indent));
    const std::string value(trim(std::string_view(line).substr(colon + 1)));
    if (!value.empty()) values.emplace_back(join(sections, "."), value);
  }
  return values;
}

// Keys that may differ: they change no value of the training, or are said in other words.
bool changes_nothing(const std::string& key) {
  static const std::set<std::string> kKeys = {
      "data.dataset_param.preprocess_parameters.model_name_or_path",
      "data.dataset_param.image_size",
      "data.dataset_param.basic_parameters.dataset",
      "data.dataloader_param.collate_param.model_name",
      "data.dataloader_param.collate_param.collator_id",
      "data.dataloader_param.pin_memory",
      "data.dataloader_param.num_workers",
      "model.trust_remote_code",
      "model.attn_implementation",
      "features.recompute_plan.use_reentrant",
      "features.chunkloss_plan.chunk_size",
      "parallel.fully_shard_parallel_size",
      "training.adam_fused",
      "training.clip_grad_foreach",
      "training.init_model_with_meta_device",
      "training.load_format",
      "training.load_strict",
      "training.metrics_dir",
      "training.plugin",
      "training.use_deter_comp"};
  static const std::vector<std::string> kSections = {"parallel.ep_plan.",
                                                     "parallel.recompute",
                                                     "features.recompute_plan.apply_modules",
                                                     "features.chunkloss_plan.",
                                                     "features.activation_offload_plan.",
                                                     "features.swap_plan.",
                                                     "training.save",
                                                     "training.no_save",
                                                     "training.no_load",
                                                     "training.profile",
                                                     "training.lora",
                                                     "training.log_interval",
                                                     "tools."};
  return kKeys.contains(key) ||
         std::any_of(kSections.begin(), kSections.end(),
                     [&key](const std::string& section) { return key.starts_with(section); });
}

std::string without(std::string text, const std::string& part) {
  for (size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
  return text;
}

// Removed with its content.
class TemporaryInputs {
 public:
  explicit TemporaryInputs(const BaselineInputs& inputs) {
    try {
      std::string name =
          (std::filesystem::temp_directory_path() / "shardloom_inputs_XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr)
        throw std::system_error(errno, std::generic_category(), "cannot make the folder " + name);
      folder_ = name;
      for (const auto& [file, content] : inputs.files)
        write_file_atomically(folder_ / file, content);
    } catch (const std::system_error& error) {
      remove();
      throw ConfigError("temporary files (TMPDIR): {}", error.what());
    }
  }
  ~TemporaryInputs() { remove(); }
  TemporaryInputs(const TemporaryInputs&) = delete;
  TemporaryInputs& operator=(const TemporaryInputs&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void remove() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

}  // namespace

std::vector<std::string> BaselineInputs::flags(const std::filesystem::path& folder) const {
  Flags f;
  f.add("use-torch-fsdp2");
  f.add("fsdp2-config-path", (folder / kFsdp2Yaml).string());
  f.add("mm-model", (folder / kModelJson).string());
  f.add("mm-data", (folder / kDataJson).string());
  std::vector<std::string> words = f.take();
  words.insert(words.end(), settings.begin(), settings.end());
  words.insert(words.end(), {"--metrics-dir", (folder / kMetricsFolder).string()});
  return words;
}

BaselineInputs baseline_inputs(const config::TrainConfig& config) {
  return {{{kModelJson, model_json(config)},
           {kDataJson, data_json(config)},
           {kFsdp2Yaml, fsdp2_yaml(config)}},
          settings(config)};
}

std::vector<std::string> baseline_faults(const BaselineInputs& inputs,
                                         const config::LoadedConfig& yaml,
                                         int nproc) {
  config::megatron::MegatronConfig read;
  const TemporaryInputs files(inputs);
  try {
    read = config::megatron::load_megatron_config(inputs.flags(files.folder()));
    config::resolve_for_world(read.loaded, nproc);
  } catch (const ConfigError& error) {
    return {fmt::format("this configuration has no counterpart on the Megatron-style path: {}",
                        without(error.what(), files.folder().string() + "/"))};
  }
  std::map<std::string, std::string> theirs;
  for (auto& [key, value] : flatten(read.loaded.dump())) theirs[key] = value;
  std::vector<std::string> faults;
  for (const auto& [key, value] : flatten(yaml.dump())) {
    const auto found = theirs.find(key);
    const std::string wanted = key == "features.loss_cfg.loss_type" ? loss_type(value) : value;
    if (changes_nothing(key) || (found != theirs.end() && found->second == wanted)) continue;
    faults.push_back(fmt::format(
        "{} is {}, but the Megatron-style path would train with {}: leave the setting at that, or "
        "leave this group out with --groups",
        key, value, found == theirs.end() ? "nothing" : found->second));
  }
  return faults;
}

}  // namespace shardloom::study
