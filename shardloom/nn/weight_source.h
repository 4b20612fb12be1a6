// How a parameter is stored in HF files (given by models, followed by the loader, exporter and
// converter): as one tensor, as row blocks of several (q, k, v), or as transposed blocks (the
// experts, which HF files keep one by one).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardloom::nn {

enum class Layout {
  kRemoteCode,  // model_type internvl_chat: names as in this project
  kHfNative,    // model_type internvl, files as transformers writes them ("language_model.model.",
                // "vision_tower.")
  kHfInMemory,  // the same in the spelling of transformers' modules ("model.language_model.",
                // "model.vision_tower.")
};

inline constexpr Layout kAllLayouts[] = {Layout::kRemoteCode, Layout::kHfNative,
                                         Layout::kHfInMemory};

// Both spellings of model_type internvl, which share one config.json.
inline bool is_hf(Layout layout) { return layout != Layout::kRemoteCode; }

// A tensor of the file that fills rows [row, row + r) and columns [column, column + c) of the
// parameter seen as a matrix; `transpose`: the file's tensor is [c, r].
struct WeightPiece {
  std::string key;
  std::vector<int64_t> shape;  // in the file
  int64_t row = 0;
  int64_t column = 0;
  bool transpose = false;
};

struct WeightSource {
  std::string parameter;  // name in the model
  std::vector<WeightPiece> pieces;

  // One piece of the same shape.
  bool is_whole() const { return pieces.size() == 1 && !pieces[0].transpose; }
};

}  // namespace shardloom::nn
