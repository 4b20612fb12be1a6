// Tensors for tests: from safetensors files and from JSON arrays; the largest difference.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "shardloom/base/json.h"

namespace shardloom::testing {

std::map<std::string, at::Tensor> load_safetensors(const std::string& path);

// A nested JSON array of numbers as a double tensor.
at::Tensor tensor_of(const Json& json);

double max_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace shardloom::testing
