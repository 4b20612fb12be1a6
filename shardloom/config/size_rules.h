// Parallel size rules: which world, context-parallel, expert-parallel and batch sizes fit a model.
// Checked before any process group is made; all broken rules are reported at once, each with the
// nearest legal values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardloom::config {

struct SizeInputs {
  int64_t world = 1;
  int64_t cp = 1;  // parallel.ulysses_parallel_size
  int64_t ep = 1;  // parallel.expert_parallel_size
  int64_t seq = 1;
  int64_t micro_batch = 1;
  int64_t global_batch = 1;
  int64_t heads = 1;          // attention heads of the language model
  int64_t kv_heads = 1;       // key/value heads of the language model
  int64_t vision_heads = 1;   // 0: no vision model, its rules do not apply
  int64_t vision_tokens = 1;  // patches + class token
  int64_t experts = 0;        // 0: a dense model, the expert rules do not apply
  int64_t top_k = 0;
};

struct BrokenRule {
  std::string rule;       // short name, e.g. "heads % cp"
  std::string key;        // what to change in the configuration; empty for sizes below 1
  bool of_model = false;  // about the model; the others are resolve_for_world()'s too
  std::string message;    // values seen and the nearest legal ones
};

struct SizeReport {
  std::vector<BrokenRule> broken;
  // Derived numbers; meaningful only when ok().
  int64_t data_parallel = 0;          // world / cp
  int64_t text_pad_to = 0;            // tokens to add so that cp divides the sequence
  int64_t kv_repeat = 1;              // copies of each key/value head when kv_heads < cp
  std::vector<int64_t> vision_split;  // vision tokens per cp rank; the first ranks take one more

  bool ok() const { return broken.empty(); }
};

SizeReport check_sizes(const SizeInputs& sizes);

}  // namespace shardloom::config
