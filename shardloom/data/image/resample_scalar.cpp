#include <algorithm>

#include "shardloom/data/image/resample.h"

namespace shardloom::data::resample {
namespace {

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

uint8_t to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

}  // namespace

void horizontal_span_scalar(const Axis& axis, const uint8_t* in, uint8_t* out, int begin, int end) {
  for (int x = begin; x < end; ++x) {
    const int32_t* weights = axis.weights_of(x);
    const uint8_t* pixel = in + static_cast<size_t>(axis.first[x]) * 3;
    int32_t red = kHalf, green = kHalf, blue = kHalf;
    for (int k = 0; k < axis.count[x]; ++k, pixel += 3) {
      red += pixel[0] * weights[k];
      green += pixel[1] * weights[k];
      blue += pixel[2] * weights[k];
    }
    uint8_t* target = out + static_cast<size_t>(x) * 3;
    target[0] = to_byte(red);
    target[1] = to_byte(green);
    target[2] = to_byte(blue);
  }
}

void horizontal_scalar(const Axis& axis, const Rows& in, uint8_t* out, size_t out_stride) {
  for (int y = 0; y < in.height; ++y) {
    horizontal_span_scalar(axis, in.row(y), out + y * out_stride, 0, axis.out_size);
  }
}

void vertical_scalar(const Axis& axis, const Rows& in, uint8_t* out) {
  std::vector<int32_t> sums(in.row_bytes);
  for (int y = 0; y < axis.out_size; ++y, out += in.row_bytes) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int k = 0; k < axis.count[y]; ++k) {
      const uint8_t* row = in.row(axis.first[y] + k);
      const int32_t weight = axis.weights_of(y)[k];
      for (size_t i = 0; i < in.row_bytes; ++i) sums[i] += row[i] * weight;
    }
    for (size_t i = 0; i < in.row_bytes; ++i) out[i] = to_byte(sums[i]);
  }
}

}  // namespace shardloom::data::resample
