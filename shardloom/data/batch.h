// What a data set gives and a model takes: named arrays. No torch here; the trainer turns them into
// tensors.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "shardloom/base/error.h"

namespace shardloom::data {

enum class DType { kInt64, kFloat32 };

// A dense row-major array that owns its bytes.
struct Array {
  DType dtype = DType::kInt64;
  std::vector<int64_t> shape;
  std::vector<int64_t> ints;  // used when dtype is kInt64
  std::vector<float> floats;  // used when dtype is kFloat32

  static Array of_ints(std::vector<int64_t> shape, std::vector<int64_t> values) {
    Array array;
    array.dtype = DType::kInt64;
    array.shape = std::move(shape);
    array.ints = std::move(values);
    return array;
  }
  static Array of_floats(std::vector<int64_t> shape, std::vector<float> values) {
    Array array;
    array.dtype = DType::kFloat32;
    array.shape = std::move(shape);
    array.floats = std::move(values);
    return array;
  }
};

using Arrays = std::map<std::string, Array>;

// One micro batch of one rank.
struct Batch {
  Arrays arrays;
  std::vector<int64_t> sample_indices;     // positions in the data set, in batch order
  std::vector<std::string> sample_places;  // "file.jsonl:12", for messages
  int64_t num_tokens = 0;                  // real (not padding) tokens
  int64_t num_targets = 0;                 // positions with a label
};

}  // namespace shardloom::data
