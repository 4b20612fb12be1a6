#include "shardloom/study/groups.h"

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::study {
namespace {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {.name = "",
       .title = "Eight groups: every feature alone and all together",
       .groups = {{.name = "baseline", .label = "baseline (Megatron-style path)", .megatron = true},
                  {.name = "none", .label = "none"},
                  {.name = "cp", .label = "+CP2", .cp = true},
                  {.name = "ep", .label = "+EP2", .ep = true},
                  {.name = "recompute", .label = "+recompute", .recompute = true},
                  {.name = "chunk_loss", .label = "+ChunkLoss", .chunk_loss = true},
                  {.name = "offload", .label = "+offload", .offload = true},
                  {.name = "all",
                   .label = "all",
                   .cp = true,
                   .ep = true,
                   .recompute = true,
                   .chunk_loss = true,
                   .offload = true}}},
      {.name = "prefetch",
       .title = "Prefetch counts (forward/backward) and the order of units",
       .groups = {{.name = "prefetch_0_2", .label = "0/2", .prefetch = {{0, 2}}},
                  {.name = "prefetch_0_0", .label = "0/0", .prefetch = {{0, 0}}},
                  {.name = "prefetch_0_1", .label = "0/1", .prefetch = {{0, 1}}},
                  {.name = "prefetch_1_2", .label = "1/2", .prefetch = {{1, 2}}},
                  {.name = "prefetch_1_1", .label = "1/1", .prefetch = {{1, 1}}},
                  {.name = "mlp1_after_language",
                   .label = "0/2, mlp1 after language",
                   .prefetch = {{0, 2}},
                   .mlp1_last = true}},
       .repetitions = 2},
      {.name = "ep",
       .title = "Expert parallelism on both paths",
       .groups = {{.name = "baseline_ep1", .label = "Megatron-style path, EP1", .megatron = true},
                  {.name = "baseline_ep2",
                   .label = "Megatron-style path, EP2",
                   .megatron = true,
                   .ep = true},
                  {.name = "ep1", .label = "YAML path, EP1"},
                  {.name = "ep2", .label = "YAML path, EP2", .ep = true}},
       .repetitions = 2},
  };
  return all;
}

}  // namespace

const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    if (!preset.name.empty()) names.push_back(preset.name);
  }
  throw ConfigError("--preset {}: there is {}{}", name, join(names, " and "),
                    did_you_mean(name, names));
}

std::string describe(const Group& group) {
  std::vector<std::string> parts;
  const auto add = [&parts](bool on, const char* name) {
    if (on) parts.emplace_back(name);
  };
  add(group.megatron, "Megatron-style path");
  add(group.cp, "CP2");
  add(group.ep, "EP2");
  add(group.recompute, "recompute");
  add(group.chunk_loss, "chunk loss");
  add(group.offload, "activation offload");
  if (group.prefetch) {
    parts.push_back(fmt::format("prefetch {}/{}", group.prefetch->first, group.prefetch->second));
  }
  add(group.mlp1_last, "mlp1 after the language layers");
  return parts.empty() ? "no feature" : join(parts, ", ");
}

}  // namespace shardloom::study
