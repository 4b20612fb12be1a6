#include "shardloom/config/megatron/rules.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "shardloom/base/strings.h"
#include "shardloom/config/megatron/document.h"

namespace shardloom::config::megatron {
namespace {

namespace fs = std::filesystem;

// The iteration that a folder of checkpoints would go on from, or "" for weights alone.
std::string iteration_of(const fs::path& folder) {
  constexpr std::string_view kPrefix = "iter_";
  const std::string name = (folder / "").parent_path().filename().string();
  if (name.starts_with(kPrefix)) return name.substr(kPrefix.size());
  std::string tracked;
  std::ifstream(folder / "latest_checkpointed_iteration.txt") >> tracked;
  return tracked == "release" ? "" : tracked;
}

class RuleChecker {
 public:
  RuleChecker(const MegatronConfig& config, Problems& problems)
      : config_(config), args_(config.args), problems_(problems) {}

  void run() {
    check_types();
    check_loss();
    warn_of_idle_chunks();
    check_rate();
    check_workers();
    check_finetune();
  }

 private:
  Place flag(const std::string& member) const { return place_in(args_.sources, member); }

  // --bf16 and --fp16 choose no type here; they may not contradict the one that is chosen.
  void check_types() {
    const auto agree = [&](bool given, const std::string& type) {
      const std::string chosen = config_.fsdp2.param_dtype.value_or("null");
      if (!given || chosen == type) return;
      problems_.error(flag(type), fmt::format("needs param_dtype: {} in {}, which has {}", type,
                                              args_.fsdp2_config_path, chosen));
    };
    agree(args_.bf16, "bf16");
    agree(args_.fp16, "fp16");
  }

  void check_loss() {
    const auto agree = [&](bool given, const std::string& member, const std::string& type) {
      const std::string& chosen = config_.model.loss_cfg.loss_type;
      if (!given || chosen == type || !config_.model.sources.contains("loss_cfg.loss_type")) return;
      problems_.error(place_in(config_.model.sources, "loss_cfg.loss_type"),
                      fmt::format("loss_cfg.loss_type is {}, but the command line has {}; remove "
                                  "one of them",
                                  chosen, flag(member).str()));
    };
    agree(args_.calculate_per_sample_loss, "calculate_per_sample_loss", "per_sample_loss");
    agree(args_.calculate_per_token_loss, "calculate_per_token_loss", "per_token_loss");
  }

  void warn_of_idle_chunks() {
    const ModelLossCfg& cfg = config_.model.loss_cfg;
    const auto warn_if = [&](bool given, const char* key) {
      if (!given) return;
      problems_.warning(place_in(config_.model.sources, key),
                        fmt::format("{} has no effect unless loss_cfg.compute_mode is chunk or "
                                    "dynamic_chunk",
                                    key));
    };
    if (cfg.compute_mode != "default") return;
    warn_if(cfg.chunk_size.has_value(), "loss_cfg.chunk_size");
    warn_if(cfg.apply_module.has_value(), "loss_cfg.apply_module");
  }

  void check_rate() {
    if (args_.lr_decay_style != "linear") return;
    if (args_.min_lr > 0) {
      problems_.error(flag("min_lr"),
                      "a linear decay to another rate than 0 is not supported; use "
                      "--lr-decay-style cosine");
    }
    if (args_.lr_decay_iters.value_or(args_.train_iters) != args_.train_iters) {
      problems_.error(flag("lr_decay_iters"),
                      fmt::format("a linear decay that does not end at --train-iters {} is not "
                                  "supported; use --lr-decay-style cosine",
                                  args_.train_iters));
    }
  }

  void check_workers() {
    const auto& in_file = config_.data.dataloader_param.num_workers;
    if (!in_file || !args_.sources.contains("num_workers") || *in_file == args_.num_workers) return;
    problems_.error(place_in(config_.data.sources, "dataloader_param.num_workers"),
                    fmt::format("dataloader_param.num_workers is {}, but the command line has {}; "
                                "remove one of them",
                                *in_file, flag("num_workers").str()));
  }

  void check_finetune() {
    if (!args_.finetune || !args_.load) return;
    const std::string iteration = iteration_of(*args_.load);
    if (iteration.empty()) return;
    problems_.error(flag("finetune"),
                    fmt::format("{} is a run at iteration {}, which goes on from there; export it "
                                "with shardloom convert dcp_to_hf and load that folder",
                                *args_.load, iteration));
  }

  const MegatronConfig& config_;
  const Arguments& args_;
  Problems& problems_;
};

}  // namespace

void check_rules(const MegatronConfig& config, Problems& problems) {
  RuleChecker(config, problems).run();
}

double share_of(int64_t part, int64_t total) {
  if (total == 0) return 1.0;
  const auto whole = static_cast<double>(total);
  double ratio = static_cast<double>(part) / whole;
  // The quotient may lie just below the whole number of steps that it stands for.
  while (static_cast<int64_t>(whole * ratio) < part)
    ratio = std::nextafter(ratio, std::numeric_limits<double>::infinity());
  return ratio;
}

std::vector<std::string> check_further_sources(const MegatronConfig& config) {
  Problems problems;
  const auto& sources = config.data.dataset_param.basic_parameters;
  const auto check = [&](size_t index, const char* key, const std::string& path, bool is_folder) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    if (path.empty() || (fs::exists(status) && fs::is_directory(status) == is_folder)) return;
    const std::string name = fmt::format("dataset_param.basic_parameters[{}].{}", index, key);
    problems.error(
        place_in(config.data.sources, name),
        fmt::format("{}: {} {}", name, fs::absolute(path, ignored).string(),
                    fs::exists(status) ? fmt::format("is not a {}", is_folder ? "folder" : "file")
                                       : "does not exist"));
  };
  for (size_t i = 1; i < sources.size(); ++i) {
    check(i, "data_path", sources[i].data_path, /*is_folder=*/false);
    check(i, "data_folder", sources[i].data_folder, /*is_folder=*/true);
  }
  return problems.errors();
}

std::vector<std::string> check_model_sizes(const MegatronConfig& config, const ModelSizes& model) {
  Problems problems;
  const MmDatasetParam& dataset = config.data.dataset_param;
  const auto compare = [&](const char* key, const auto& given, const auto& wanted) {
    if (!given || *given == wanted) return;
    const std::string path = fmt::format("dataset_param.{}", key);
    problems.error(place_in(config.data.sources, path),
                   fmt::format("{} is {}, but the model in {} has {}", path, *given,
                               config.model.init_from_hf_path, wanted));
  };
  compare("image_size", config.loaded.config.data.dataset_param.image_size, model.image_size);
  compare("patch_size", dataset.patch_size, model.patch_size);
  compare("down_sample_ratio", dataset.down_sample_ratio, model.downsample_ratio);
  return problems.errors();
}

}  // namespace shardloom::config::megatron
