// Checkpoints that PyTorch 2.11 wrote, with their true values.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shardloom/base/json.h"
#include "shardloom/checkpoint/dcp/box.h"
#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint::dcp {

inline const std::filesystem::path kData = std::filesystem::path(SHARDLOOM_TEST_DATA) / "dcp";

struct TrueTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;  // dense, row-major, little-endian
};

// `json` has dtype ("torch.float32" or "float32"), shape and values, which are exact.
TrueTensor true_tensor(const Json& json);

// Sample name -> tensors of samples/<name>.truth.json.
std::map<std::string, TrueTensor> true_tensors(const std::string& sample);

// The box of a dense row-major tensor, element by element.
std::string cut_out(const TrueTensor& tensor, const Box& box);

// What fails with, or "no error".
std::string error_of(const std::function<void()>& action);

}  // namespace shardloom::checkpoint::dcp
