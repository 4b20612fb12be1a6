#include "tests/testing/tensors.h"

#include "shardloom/checkpoint/safetensors.h"

namespace shardloom::testing {
namespace {

at::ScalarType type_of(checkpoint::DType dtype) {
  switch (dtype) {
    case checkpoint::DType::kI64:
      return at::kLong;
    case checkpoint::DType::kBF16:
      return at::kBFloat16;
    case checkpoint::DType::kF32:
      return at::kFloat;
    default:
      throw InternalError("test file of an unexpected type");
  }
}

void flatten(const Json& json, std::vector<double>& values) {
  if (json.is_array()) {
    for (const Json& item : json) flatten(item, values);
  } else {
    values.push_back(json.get<double>());
  }
}

}  // namespace

std::map<std::string, at::Tensor> load_safetensors(const std::string& path) {
  const checkpoint::SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& info : file.tensors()) {
    at::Tensor t = at::empty(info.shape, at::TensorOptions().dtype(type_of(info.dtype)));
    const auto bytes = file.data(info);
    std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
    tensors.emplace(info.name, t);
  }
  return tensors;
}

at::Tensor tensor_of(const Json& json) {
  std::vector<int64_t> shape;
  for (const Json* level = &json; level->is_array(); level = &(*level)[0])
    shape.push_back(static_cast<int64_t>(level->size()));
  std::vector<double> values;
  flatten(json, values);
  return at::tensor(values, at::kDouble).view(shape);
}

double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace shardloom::testing
