#include "shardloom/distributed/shm_backend_reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>

#include "shardloom/base/error.h"

namespace shardloom::distributed {
namespace {

using RedOp = c10d::ReduceOp::RedOpType;

constexpr int64_t kBlock = 1024;  // sums of a block stay in the first-level cache

template <typename T>
struct Sum {
  using Type = T;
};
template <>
struct Sum<c10::BFloat16> {
  using Type = float;
};
template <>
struct Sum<c10::Half> {
  using Type = float;
};
template <>
struct Sum<uint8_t> {
  using Type = uint32_t;
};

template <typename T>
typename Sum<T>::Type widen(T value) {
  return static_cast<typename Sum<T>::Type>(value);
}

// Branch-free twins of c10's conversions, which the compiler can vectorise.
template <>
float widen(c10::BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.x) << 16);
}

template <typename T>
T narrow(typename Sum<T>::Type value) {
  return static_cast<T>(value);
}

template <>
c10::BFloat16 narrow<c10::BFloat16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return {static_cast<uint16_t>(is_nan ? 0x7fc0 : rounded), c10::BFloat16::from_bits()};
}

struct Add {
  template <typename T>
  static T combine(T a, T b) {
    return a + b;
  }
};
struct Least {
  template <typename T>
  static T combine(T a, T b) {
    return a != a || a < b ? a : b;
  }
};
struct Greatest {
  template <typename T>
  static T combine(T a, T b) {
    return a != a || a > b ? a : b;
  }
};

template <typename T, typename Op>
void reduce_blocks(const std::vector<const std::byte*>& sources,
                   bool mean,
                   std::byte* out,
                   int64_t num_elements) {
  typename Sum<T>::Type sums[kBlock];
  const auto count = static_cast<typename Sum<T>::Type>(sources.size());
  for (int64_t begin = 0; begin < num_elements; begin += kBlock) {
    const int64_t length = std::min(kBlock, num_elements - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (int64_t i = 0; i < length; ++i) sums[i] = widen(first[i]);
    for (size_t source = 1; source < sources.size(); ++source) {
      const T* next = reinterpret_cast<const T*>(sources[source]) + begin;
      for (int64_t i = 0; i < length; ++i) sums[i] = Op::combine(sums[i], widen(next[i]));
    }
    if (mean) {
      for (int64_t i = 0; i < length; ++i) sums[i] /= count;
    }
    T* target = reinterpret_cast<T*>(out) + begin;
    for (int64_t i = 0; i < length; ++i) target[i] = narrow<T>(sums[i]);
  }
}

template <typename T>
void reduce_as(RedOp op,
               const std::vector<const std::byte*>& sources,
               std::byte* out,
               int64_t num_elements) {
  if (op == RedOp::MIN) return reduce_blocks<T, Least>(sources, false, out, num_elements);
  if (op == RedOp::MAX) return reduce_blocks<T, Greatest>(sources, false, out, num_elements);
  reduce_blocks<T, Add>(sources, op == RedOp::AVG, out, num_elements);
}

}  // namespace

bool can_reduce(at::ScalarType dtype, RedOp op) {
  const bool is_floating =
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
  if (op == RedOp::AVG) return is_floating;
  return (is_floating || dtype == at::kLong || dtype == at::kByte) &&
         (op == RedOp::SUM || op == RedOp::MIN || op == RedOp::MAX);
}

void reduce_in_order(at::ScalarType dtype,
                     RedOp op,
                     const std::vector<const std::byte*>& sources,
                     std::byte* out,
                     int64_t num_elements) {
  switch (dtype) {
    case at::kFloat:
      return reduce_as<float>(op, sources, out, num_elements);
    case at::kBFloat16:
      return reduce_as<c10::BFloat16>(op, sources, out, num_elements);
    case at::kHalf:
      return reduce_as<c10::Half>(op, sources, out, num_elements);
    case at::kDouble:
      return reduce_as<double>(op, sources, out, num_elements);
    case at::kLong:
      return reduce_as<int64_t>(op, sources, out, num_elements);
    case at::kByte:
      return reduce_as<uint8_t>(op, sources, out, num_elements);
    default:
      throw DistributedError("no reduction of {}", c10::toString(dtype));
  }
}

}  // namespace shardloom::distributed
