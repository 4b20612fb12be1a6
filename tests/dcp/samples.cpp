#include "tests/dcp/samples.h"

#include <bit>
#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/torch_dtype.h"

namespace shardloom::checkpoint::dcp {
namespace {

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append_value(std::string& bytes, DType dtype, const Json& value) {
  switch (dtype) {
    case DType::kF32:
      return append(bytes, value.get<float>());
    case DType::kBF16:
      // The values are bfloat16 numbers: the low half is zero.
      return append(bytes,
                    static_cast<uint16_t>(std::bit_cast<uint32_t>(value.get<float>()) >> 16));
    case DType::kI64:
      return append(bytes, static_cast<int64_t>(value.get<double>()));
    case DType::kU8:
      return append(bytes, value.get<uint8_t>());
    default:
      throw InternalError("no {} in the samples", dtype_name(dtype));
  }
}

}  // namespace

TrueTensor true_tensor(const Json& json) {
  TrueTensor tensor;
  std::string name = json.at("dtype").get<std::string>();
  if (name.starts_with("torch.")) name = name.substr(6);
  tensor.dtype = parse_torch_dtype("torch " + name).value();
  tensor.shape = json.at("shape").get<std::vector<int64_t>>();
  for (const Json& value : json.at("values")) append_value(tensor.bytes, tensor.dtype, value);
  return tensor;
}

std::map<std::string, TrueTensor> true_tensors(const std::string& sample) {
  const Json truth = read_json_file(kData / "samples" / (sample + ".truth.json"), ExitCode::kData);
  std::map<std::string, TrueTensor> tensors;
  for (const auto& [name, item] : (truth.contains("items") ? truth.at("items") : truth).items()) {
    if (item.is_object() && item.contains("values")) tensors[name] = true_tensor(item);
  }
  return tensors;
}

std::string cut_out(const TrueTensor& tensor, const Box& box) {
  const size_t element = dtype_bits(tensor.dtype) / 8;
  std::string bytes;
  for (uint64_t i = 0; i < volume(box.sizes); ++i) {
    uint64_t rest = i;
    uint64_t at = 0;
    uint64_t stride = 1;
    for (size_t dim = box.sizes.size(); dim-- > 0;) {
      const auto size = static_cast<uint64_t>(box.sizes[dim]);
      at += (static_cast<uint64_t>(box.offsets[dim]) + rest % size) * stride;
      rest /= size;
      stride *= static_cast<uint64_t>(tensor.shape[dim]);
    }
    bytes += tensor.bytes.substr(at * element, element);
  }
  return bytes;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace shardloom::checkpoint::dcp
