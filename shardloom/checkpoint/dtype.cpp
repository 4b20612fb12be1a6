#include "shardloom/checkpoint/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace shardloom::checkpoint {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  uint64_t bits;
};

// In the order of the enum: dtype_row() indexes by its value.
constexpr std::array kRows = {
    DTypeRow{DType::kBool, "BOOL", 8},
    DTypeRow{DType::kF4, "F4", 4},
    DTypeRow{DType::kF6E2M3, "F6_E2M3", 6},
    DTypeRow{DType::kF6E3M2, "F6_E3M2", 6},
    DTypeRow{DType::kU8, "U8", 8},
    DTypeRow{DType::kI8, "I8", 8},
    DTypeRow{DType::kF8E5M2, "F8_E5M2", 8},
    DTypeRow{DType::kF8E4M3, "F8_E4M3", 8},
    DTypeRow{DType::kF8E8M0, "F8_E8M0", 8},
    DTypeRow{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    DTypeRow{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    DTypeRow{DType::kI16, "I16", 16},
    DTypeRow{DType::kU16, "U16", 16},
    DTypeRow{DType::kF16, "F16", 16},
    DTypeRow{DType::kBF16, "BF16", 16},
    DTypeRow{DType::kI32, "I32", 32},
    DTypeRow{DType::kU32, "U32", 32},
    DTypeRow{DType::kF32, "F32", 32},
    DTypeRow{DType::kC64, "C64", 64},
    DTypeRow{DType::kF64, "F64", 64},
    DTypeRow{DType::kI64, "I64", 64},
    DTypeRow{DType::kU64, "U64", 64},
};

constexpr bool rows_are_in_enum_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_enum_order());

const DTypeRow& dtype_row(DType dtype) { return kRows.at(static_cast<size_t>(dtype)); }

}  // namespace

std::string_view dtype_name(DType dtype) { return dtype_row(dtype).name; }

uint64_t dtype_bits(DType dtype) { return dtype_row(dtype).bits; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeRow& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  names.reserve(kRows.size());
  for (const DTypeRow& row : kRows) names.emplace_back(row.name);
  return names;
}

std::optional<uint64_t> tensor_bytes(DType dtype, const std::vector<int64_t>& shape) {
  uint64_t bits = dtype_bits(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bits, static_cast<uint64_t>(size), &bits)) {
      return std::nullopt;
    }
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace shardloom::checkpoint
