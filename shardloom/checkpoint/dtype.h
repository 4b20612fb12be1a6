// Element types of the safetensors format. No torch: the map to tensor types stands with the code
// that loads weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::checkpoint {

enum class DType {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// The name in a file: "BF16", "F8_E4M3", ...
std::string_view dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
std::vector<std::string> dtype_names();

// Bits of one element: 4 to 64.
uint64_t dtype_bits(DType dtype);

// Bytes of a dense tensor; nothing when a size is negative, the product overflows 64 bits, or the
// bits do not fill bytes.
std::optional<uint64_t> tensor_bytes(DType dtype, const std::vector<int64_t>& shape);

// "[2, 3]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace shardloom::checkpoint
