#include "shardloom/checkpoint/convert/cast.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

#include "shardloom/base/error.h"

namespace shardloom::checkpoint {
namespace {

// Calls action(T{}) with the type of the elements.
template <typename Action>
void with_type(DType dtype, const Action& action) {
  switch (dtype) {
    case DType::kF64:
      return action(double{});
    case DType::kF32:
      return action(float{});
    case DType::kBF16:
      return action(c10::BFloat16{});
    case DType::kF16:
      return action(c10::Half{});
    default:
      throw InternalError("{} is no type of weights", dtype_name(dtype));
  }
}

template <typename From, typename To>
void cast_all(std::string_view source, char* target) {
  const size_t count = source.size() / sizeof(From);
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, source.data() + i * sizeof(From), sizeof(From));
    // PyTorch goes through float too.
    const To cast = static_cast<To>(static_cast<float>(value));
    std::memcpy(target + i * sizeof(To), &cast, sizeof(To));
  }
}

}  // namespace

bool is_weight_type(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

void cast_elements(std::string_view source, DType from, char* target, DType to) {
  with_type(from, [&](auto from_type) {
    with_type(to, [&](auto to_type) {
      cast_all<decltype(from_type), decltype(to_type)>(source, target);
    });
  });
}

}  // namespace shardloom::checkpoint
