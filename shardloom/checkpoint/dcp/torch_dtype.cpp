#include "shardloom/checkpoint/dcp/torch_dtype.h"

#include <algorithm>
#include <array>

#include "shardloom/base/error.h"

namespace shardloom::checkpoint::dcp {
namespace {

struct Row {
  DType dtype;
  std::string_view name;     // without "torch "
  std::string_view storage;  // without "torch "; empty when there is none
};

constexpr std::array kRows = {
    Row{DType::kBool, "bool", "BoolStorage"},
    Row{DType::kU8, "uint8", "ByteStorage"},
    Row{DType::kI8, "int8", "CharStorage"},
    Row{DType::kF8E5M2, "float8_e5m2", ""},
    Row{DType::kF8E4M3, "float8_e4m3fn", ""},
    Row{DType::kF8E8M0, "float8_e8m0fnu", ""},
    Row{DType::kF8E4M3Fnuz, "float8_e4m3fnuz", ""},
    Row{DType::kF8E5M2Fnuz, "float8_e5m2fnuz", ""},
    Row{DType::kI16, "int16", "ShortStorage"},
    Row{DType::kU16, "uint16", ""},
    Row{DType::kF16, "float16", "HalfStorage"},
    Row{DType::kBF16, "bfloat16", "BFloat16Storage"},
    Row{DType::kI32, "int32", "IntStorage"},
    Row{DType::kU32, "uint32", ""},
    Row{DType::kF32, "float32", "FloatStorage"},
    Row{DType::kC64, "complex64", "ComplexFloatStorage"},
    Row{DType::kF64, "float64", "DoubleStorage"},
    Row{DType::kI64, "int64", "LongStorage"},
    Row{DType::kU64, "uint64", ""},
};

constexpr std::array<std::string_view, 8> kForeignDTypes = {
    "complex32", "complex128", "qint8",    "quint8",
    "qint32",    "quint4x2",   "quint2x4", "float4_e2m1fn_x2"};
constexpr std::array<std::string_view, 5> kForeignStorages = {
    "ComplexDoubleStorage", "QInt8Storage", "QUInt8Storage", "QInt32Storage", "QUInt4x2Storage"};

constexpr std::string_view kModule = "torch ";

// "torch float32" -> "float32"; empty for another module.
std::string_view name_in_torch(std::string_view global) {
  return global.starts_with(kModule) ? global.substr(kModule.size()) : std::string_view();
}

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Row& row_of(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  throw CheckpointError(
      "{} tensors cannot be kept in a PyTorch checkpoint; convert them first or "
      "write safetensors",
      dtype_name(dtype));
}

}  // namespace

std::string torch_dtype_global(DType dtype) {
  return std::string(kModule) + std::string(row_of(dtype).name);
}

std::optional<DType> parse_torch_dtype(std::string_view global) {
  const std::string_view name = name_in_torch(global);
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool is_torch_dtype_global(std::string_view global) {
  return parse_torch_dtype(global).has_value() || contains(kForeignDTypes, name_in_torch(global));
}

std::optional<std::string> torch_storage_global(DType dtype) {
  const Row& row = row_of(dtype);
  if (row.storage.empty()) return std::nullopt;
  return std::string(kModule) + std::string(row.storage);
}

std::optional<DType> parse_torch_storage(std::string_view global) {
  const std::string_view name = name_in_torch(global);
  for (const Row& row : kRows) {
    if (!row.storage.empty() && row.storage == name) return row.dtype;
  }
  return std::nullopt;
}

bool is_torch_storage_global(std::string_view global) {
  return parse_torch_storage(global).has_value() ||
         contains(kForeignStorages, name_in_torch(global));
}

}  // namespace shardloom::checkpoint::dcp
