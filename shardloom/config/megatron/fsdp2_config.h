// fsdp2_config.yaml: how the Megatron-style path shards, recomputes and prefetches. Member names
// are the keys; unlike in the Python reference unknown keys are errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "shardloom/config/schema.h"

namespace shardloom::config::megatron {

struct Fsdp2Config {
  std::optional<int64_t> sharding_size = 1;  // ranks of one copy; nullopt is "auto" (all)
  Patterns sub_modules_to_wrap;              // the rest belongs to the root unit
  Patterns ignored_modules;
  bool reshard_after_forward = true;
  std::optional<std::string> param_dtype;  // fp32, bf16, fp16; null keeps the stored type
  std::optional<std::string> reduce_dtype;
  std::optional<std::string> output_dtype;
  bool cast_forward_inputs = true;
  bool offload_to_cpu = false;
  bool pin_memory = true;  // of offload_to_cpu
  int64_t num_to_forward_prefetch = 0;
  int64_t num_to_backward_prefetch = 0;
  Patterns recompute_modules;
  bool use_reentrant = true;
  bool align_fsdp_param_groups = false;
  int64_t expert_parallel_size = 1;
  bool reshard_local_experts = true;  // false: experts are not sharded beyond expert parallelism
  Patterns moe_modules;

  Sources sources;  // where each given value stands, by key
};

// Throws one ConfigError with a line "file:line:column: message" for each fault.
Fsdp2Config load_fsdp2_config(const std::filesystem::path& path);
// The same from text; `origin` names it in places.
Fsdp2Config parse_fsdp2_config(std::string_view text, const std::string& origin);

}  // namespace shardloom::config::megatron
