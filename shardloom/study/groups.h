// The groups of a study as data: what each one switches on, over the settings that all share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardloom::study {

struct Group {
  std::string name;       // its folder, and what --groups takes
  std::string label;      // in the tables
  bool megatron = false;  // started through the Megatron-style path
  bool cp = false;
  bool ep = false;
  bool recompute = false;
  bool chunk_loss = false;
  bool offload = false;
  std::optional<std::pair<int, int>> prefetch = std::nullopt;  // units ahead: forward, backward
  bool mlp1_last = false;  // the order of units: mlp1 behind the language layers
};

struct Preset {
  std::string name;   // "" is the study of the eight groups
  std::string title;  // of the page
  std::vector<Group>
      groups;           // in the order of running; the first one is what others are measured by
  int repetitions = 1;  // of each group
};

// Throws ConfigError for an unknown name.
const Preset& find_preset(const std::string& name);

// What the group switches on, as in "EP2, recompute"; "no feature".
std::string describe(const Group& group);

}  // namespace shardloom::study
