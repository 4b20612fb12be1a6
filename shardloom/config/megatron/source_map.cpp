#include "shardloom/config/megatron/source_map.h"

#include <fmt/format.h>

#include <iterator>

#include "shardloom/config/megatron/flags.h"

namespace shardloom::config::megatron {
namespace {

constexpr KeyPair kFsdp2Keys[] = {
    {"sharding_size", "parallel.fully_shard_parallel_size"},
    {"sub_modules_to_wrap", "parallel.fsdp_plan.apply_modules"},
    {"ignored_modules", "parallel.fsdp_plan.ignored_modules"},
    {"reshard_after_forward", "parallel.fsdp_plan.reshard_after_forward"},
    {"param_dtype", "parallel.fsdp_plan.param_dtype"},
    {"reduce_dtype", "parallel.fsdp_plan.reduce_dtype"},
    {"output_dtype", "parallel.fsdp_plan.output_dtype"},
    {"cast_forward_inputs", "parallel.fsdp_plan.cast_forward_inputs"},
    {"offload_to_cpu", "parallel.fsdp_plan.cpu_offload"},
    {"num_to_forward_prefetch", "parallel.fsdp_plan.num_to_forward_prefetch"},
    {"num_to_backward_prefetch", "parallel.fsdp_plan.num_to_backward_prefetch"},
    {"recompute_modules", "features.recompute"},
    {"recompute_modules", "features.recompute_plan.apply_modules"},
    {"use_reentrant", "features.recompute_plan.use_reentrant"},
    {"expert_parallel_size", "parallel.expert_parallel_size"},
    {"reshard_local_experts", "parallel.expert_fully_shard_parallel_size"},
    {"moe_modules", "parallel.ep_plan.apply_modules"},
};

constexpr KeyPair kModelKeys[] = {
    {"model_id", "model.model_id"},
    {"init_from_hf_path", "model.model_name_or_path"},
    {"num_hidden_layers", "model.num_hidden_layers"},
    {"random_init", "model.random_init"},
    {"trust_remote_code", "model.trust_remote_code"},
    {"freeze", "model.freeze"},
    {"attn_implementation", "model.attn_implementation"},
    {"loss_cfg.loss_type", "features.loss_cfg.loss_type"},
    {"loss_cfg.router_aux_loss_coef", "features.loss_cfg.router_aux_loss_coef"},
    {"loss_cfg.compute_mode", "features.enable_chunk_loss"},
    {"loss_cfg.compute_mode", "features.enable_dynamic_chunk_loss"},
    {"loss_cfg.apply_module", "features.chunkloss_plan.apply_module"},
    {"loss_cfg.chunk_size", "features.chunkloss_plan.chunk_size"},
    {"loss_cfg.chunk_size", "features.chunkloss_plan.total_chunk_size"},
};

constexpr KeyPair kDataKeys[] = {
    {"dataset_param.tokenizer_config.from_pretrained",
     "data.dataset_param.preprocess_parameters.model_name_or_path"},
    {"dataset_param.template_name", "data.dataset_param.conv_style"},
    {"dataset_param.preprocess_parameters.train_pipeline.image", "data.dataset_param.image_size"},
    {"dataset_param.image_size", "data.dataset_param.image_size"},
    {"dataset_param.group_by_length", "data.dataset_param.pad_to"},
    {"dataset_param.dynamic_image_size", "data.dataset_param.max_dynamic_patch"},
    {"dataset_param.use_thumbnail", "data.dataset_param.use_thumbnail"},
    {"dataset_param.min_dynamic_patch", "data.dataset_param.min_dynamic_patch"},
    {"dataset_param.max_dynamic_patch", "data.dataset_param.max_dynamic_patch"},
    {"dataset_param.on_bad_sample", "data.dataset_param.on_bad_sample"},
    {"dataloader_param.dataloader_mode", "data.dataloader_param.dataloader_mode"},
    {"dataloader_param.sampler_type", "data.dataloader_param.sampler_type"},
    {"dataloader_param.shuffle", "data.dataloader_param.shuffle"},
    {"dataloader_param.shuffle_seed", "data.dataloader_param.shuffle_seed"},
    {"dataloader_param.drop_last", "data.dataloader_param.drop_last"},
    {"dataloader_param.pin_memory", "data.dataloader_param.pin_memory"},
    {"dataloader_param.num_workers", "data.dataloader_param.num_workers"},
};

// The places of these are not copied as they stand: add_data_source() knows those of the first data
// source, and a program may have data sets of its own that no list of types has.
constexpr KeyPair kOtherDataKeys[] = {
    {"dataset_param.dataset_type", "data.dataset_param.dataset_type"},
    {"dataset_param.basic_parameters.data_path", "data.dataset_param.basic_parameters.dataset"},
    {"dataset_param.basic_parameters.data_path", "data.dataset_param.basic_parameters.dataset[0]"},
    {"dataset_param.basic_parameters.data_folder",
     "data.dataset_param.basic_parameters.dataset_dir"},
};

// Copies the place of a key and of what stands below it ("freeze[2]"); null values too.
void copy_places(const Sources& from,
                 const std::string& from_key,
                 Sources& to,
                 const std::string& to_key) {
  for (auto it = from.lower_bound(from_key); it != from.end(); ++it) {
    if (!it->first.starts_with(from_key)) break;
    const std::string rest = it->first.substr(from_key.size());
    if (rest.empty() || rest[0] == '[' || rest[0] == '.') to[to_key + rest] = it->second;
  }
}

template <size_t kSize>
void copy_all(const Sources& from, const KeyPair (&keys)[kSize], Sources& to) {
  for (const KeyPair& key : keys) copy_places(from, key.from, to, key.to);
}

void add_data_source(const DataJson& data, Sources& to) {
  const std::string entry = "dataset_param.basic_parameters";
  const std::string basic = "data.dataset_param.basic_parameters";
  for (const std::string& first : {entry, entry + "[0]"}) {
    if (const auto it = data.sources.find(first + ".data_path"); it != data.sources.end()) {
      to[basic + ".dataset"] = it->second;
      to[basic + ".dataset[0]"] = it->second;
    }
    const auto folder = data.sources.find(first + ".data_folder");
    if (folder != data.sources.end() && !data.dataset_param.basic_parameters[0].data_folder.empty())
      to[basic + ".dataset_dir"] = folder->second;
  }
}

}  // namespace

std::vector<KeyPair> key_pairs() {
  std::vector<KeyPair> pairs(std::begin(kFsdp2Keys), std::end(kFsdp2Keys));
  pairs.insert(pairs.end(), std::begin(kModelKeys), std::end(kModelKeys));
  pairs.insert(pairs.end(), std::begin(kDataKeys), std::end(kDataKeys));
  pairs.insert(pairs.end(), std::begin(kOtherDataKeys), std::end(kOtherDataKeys));
  return pairs;
}

void fill_sources(MegatronConfig& config) {
  Sources& to = config.loaded.sources;
  to[""] = Place{std::make_shared<const std::string>("command line")};
  copy_all(config.fsdp2.sources, kFsdp2Keys, to);
  copy_all(config.model.sources, kModelKeys, to);
  copy_all(config.data.sources, kDataKeys, to);
  add_data_source(config.data, to);
  if (!config.fsdp2.sources.contains("sharding_size")) {
    to["parallel.fully_shard_parallel_size"] = Place{std::make_shared<const std::string>(
        fmt::format("{} (without sharding_size)", config.args.fsdp2_config_path))};
  }
  // Last: a flag wins over a file.
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) {
      if (!flag.yaml_key.empty())
        copy_places(config.args.sources, flag.field.name, to, flag.yaml_key);
    }
  }
}

}  // namespace shardloom::config::megatron
