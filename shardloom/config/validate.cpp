#include "shardloom/config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/not_built.h"
#include "shardloom/config/pattern.h"

namespace shardloom::config {
namespace {

// A plan and the switch that makes it act.
struct Plan {
  const char* switch_path;
  const char* patterns_path;
  bool active;
  const Patterns* patterns;  // null: not given
};

std::vector<Plan> plans_of(const TrainConfig& config) {
  const auto& features = config.features;
  const auto optional = [](const std::optional<Patterns>& patterns) {
    return patterns ? &*patterns : nullptr;
  };
  return {
      {"features.recompute", "features.recompute_plan.apply_modules", features.recompute,
       &features.recompute_plan.apply_modules},
      {"features.enable_activation_offload", "features.activation_offload_plan.apply_modules",
       features.enable_activation_offload,
       optional(features.activation_offload_plan.apply_modules)},
      {"features.enable_chunk_mbs", "features.chunkmbs_plan.apply_modules",
       features.enable_chunk_mbs, optional(features.chunkmbs_plan.apply_modules)},
  };
}

// The value at a dotted path, as the dump writes it; "" when an optional section on the way is
// absent.
std::string dumped_value(const TrainConfig& config, const std::string& path) {
  const Section* section = &train_config_section();
  const void* owner = &config;
  const Field* field = nullptr;
  for (const std::string& name : split(path, '.')) {
    if (field != nullptr) {
      owner = field->codec->section_target(field->get(owner));
      section = field->codec->section();
      if (owner == nullptr) return "";
    }
    field = section->find(name);
    SHARDLOOM_CHECK(field != nullptr, "{} is not in the schema", path);
  }
  return field->codec->dump(field->get(owner));
}

class Validator {
 public:
  Validator(const LoadedConfig& loaded, Problems& problems)
      : loaded_(loaded), config_(loaded.config), problems_(problems) {}

  void run(FeatureCheck features) {
    check_parallel();
    check_model();
    check_data();
    check_plans();
    check_learning_rate();
    check_batch();
    check_saving();
    if (features == FeatureCheck::kBuilt) check_built();
  }

 private:
  void error(const std::string& path, const std::string& message) {
    problems_.error(loaded_.place(path), fmt::format("{} {}", path, message));
  }
  void warning(const std::string& path, const std::string& message) {
    problems_.warning(loaded_.place(path), fmt::format("{} {}", path, message));
  }

  void check_patterns(const std::string& path, const Patterns& patterns, bool active) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      const std::string fault = pattern_fault(patterns[i]);
      if (fault.empty()) continue;
      const std::string message = fmt::format("(pattern \"{}\"): {}", patterns[i], fault);
      const std::string item = fmt::format("{}[{}]", path, i);
      active ? error(item, message)
             : warning(item, message + "; it has no effect while its switch is off");
    }
  }

  void check_parallel() {
    const auto& parallel = config_.parallel;
    const bool experts = parallel.expert_parallel_size > 1;
    check_patterns("parallel.fsdp_plan.apply_modules", parallel.fsdp_plan.apply_modules, true);
    check_patterns("parallel.fsdp_plan.ignored_modules", parallel.fsdp_plan.ignored_modules, true);
    check_patterns("parallel.fsdp_plan.hook_modules",
                   parallel.fsdp_plan.hook_modules.value_or(Patterns{}), true);
    check_patterns("parallel.ep_plan.apply_modules", parallel.ep_plan.apply_modules, experts);
    check_patterns("parallel.ep_plan.apply_efsdp_modules", parallel.ep_plan.apply_efsdp_modules,
                   experts);
    if (experts && parallel.ep_plan.apply_modules.empty()) {
      error("parallel.expert_parallel_size",
            fmt::format("is {}, which needs parallel.ep_plan.apply_modules",
                        parallel.expert_parallel_size));
    }
    if (parallel.expert_data_parallel_size > 1 &&
        parallel.expert_fully_shard_parallel_size.value_or(1) > 1 && !experts) {
      error("parallel.expert_data_parallel_size",
            "and expert_fully_shard_parallel_size above 1 need expert_parallel_size above 1");
    }
    const std::string& attention = config_.model.attn_implementation;
    if (parallel.ulysses_parallel_size > 1 && !attention.starts_with("flash_attention")) {
      error("model.attn_implementation",
            fmt::format(
                "is {}; ulysses_parallel_size above 1 needs flash_attention_2 or flash_attention_3",
                attention));
    }
  }

  void check_model() {
    check_patterns("model.freeze", config_.model.freeze, true);
    if (config_.model.random_init && config_.training.load) {
      error("model.random_init", "is true, but training.load names weights; remove one of them");
    }
  }

  void check_data() {
    const std::string base = "data.dataset_param.";
    const auto& dataset = config_.data.dataset_param;
    if (dataset.min_dynamic_patch > dataset.max_dynamic_patch) {
      error(base + "min_dynamic_patch",
            fmt::format("is {}, more than max_dynamic_patch {}", dataset.min_dynamic_patch,
                        dataset.max_dynamic_patch));
    }
    if (!config_.data.dataloader_param.drop_last) {
      error("data.dataloader_param.drop_last",
            "is false; an incomplete last batch cannot be cut over all ranks, set it to true");
    }
  }

  void check_plans() {
    for (const Plan& plan : plans_of(config_)) {
      const bool given = plan.patterns != nullptr && !plan.patterns->empty();
      if (plan.active && !given)
        error(plan.switch_path, fmt::format("needs {}", plan.patterns_path));
      if (!given) continue;
      check_patterns(plan.patterns_path, *plan.patterns, plan.active);
      if (!plan.active && loaded_.sources.contains(plan.patterns_path)) {
        warning(plan.patterns_path,
                fmt::format("has no effect while {} is false", plan.switch_path));
      }
    }
    const auto& features = config_.features;
    check_patterns("features.chunkloss_plan.apply_module", {features.chunkloss_plan.apply_module},
                   features.enable_chunk_loss);
    if (features.enable_dynamic_chunk_loss && !features.enable_chunk_loss) {
      error("features.enable_dynamic_chunk_loss", "needs features.enable_chunk_loss: true");
    }
  }

  void check_learning_rate() {
    const auto& training = config_.training;
    if (training.lr < training.lr_min) {
      error("training.lr_min", fmt::format("is {}, more than lr {}", training.lr_min, training.lr));
    }
    if (training.lr < training.lr_start) {
      error("training.lr_start",
            fmt::format("is {}, more than lr {}", training.lr_start, training.lr));
    }
    if (!training.lr_warmup_iters) return;
    if (training.lr_warmup_ratio > 0) {
      error("training.lr_warmup_iters", "and lr_warmup_ratio are both given; remove one of them");
    }
    // With train_iters 0 no step is made, and with train_epochs their number is not known yet.
    const bool known = training.train_iters > 0 && !training.train_epochs;
    if (known && *training.lr_warmup_iters > training.train_iters) {
      error("training.lr_warmup_iters",
            fmt::format("is {}, more than train_iters {}", *training.lr_warmup_iters,
                        training.train_iters));
    }
  }

  void check_batch() {
    const auto& training = config_.training;
    if (training.train_epochs && loaded_.sources.contains("training.train_iters")) {
      error("training.train_epochs", "and train_iters are both given; remove one of them");
    }
    if (!training.global_batch_size || !loaded_.sources.contains("training.micro_batch_size"))
      return;
    const int64_t step =
        training.micro_batch_size * training.gradient_accumulation_steps.value_or(1);
    if (*training.global_batch_size % step != 0) {
      error("training.global_batch_size",
            fmt::format(
                "is {}, not a multiple of micro_batch_size {} x gradient_accumulation_steps {}",
                *training.global_batch_size, training.micro_batch_size,
                training.gradient_accumulation_steps.value_or(1)));
    }
  }

  void check_saving() {
    const auto& training = config_.training;
    if (training.save_interval > 0 && !training.save) {
      warning("training.save_interval", "has no effect: training.save names no folder");
    }
    if (training.save_async && training.save_format == "hf") {
      warning("training.save_async", "has no effect unless save_format is dcp");
    }
    const bool weights_alone = training.no_save_optim && training.no_save_rng;
    if (training.save_hf_layout != "auto" &&
        (training.save_format == "dcp" || (training.save_format == "auto" && !weights_alone))) {
      warning("training.save_hf_layout", "has no effect unless save_format is hf");
    }
  }

  void check_built() {
    for (const NotBuilt& key : not_built_keys()) {
      const std::string value = dumped_value(config_, key.path);
      if (std::find(key.inactive.begin(), key.inactive.end(), value) != key.inactive.end())
        continue;
      error(key.path,
            fmt::format("{} is not supported yet (here it must be {}){}", value,
                        join(key.inactive, " or "), key.remedy.empty() ? "" : "; " + key.remedy));
    }
    const auto& plugins = config_.training.plugin;
    for (size_t i = 0; i < plugins.size(); ++i) {
      if (is_builtin_plugin(plugins[i]) || plugins[i].ends_with(".so")) continue;
      error(fmt::format("training.plugin[{}]", i),
            fmt::format("\"{}\" is not supported yet: neither a built-in plug-in "
                        "(mindspeed_mm/fsdp/models/internvl3_5, "
                        "mindspeed_mm/fsdp/data/datasets/internvl3_5) nor a shared library (.so)",
                        plugins[i]));
    }
  }

  const LoadedConfig& loaded_;
  const TrainConfig& config_;
  Problems& problems_;
};

}  // namespace

void validate(const LoadedConfig& loaded, FeatureCheck features, Problems& problems) {
  Validator(loaded, problems).run(features);
}

}  // namespace shardloom::config
