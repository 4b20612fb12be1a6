// The two passes of Pillow's antialiased bicubic resize on 8-bit RGB rows, in a plain and an AVX2
// form with equal results. Per axis: scale = in/out, s = max(scale, 1), centre = (i + 0.5) scale,
// taps within 2 s of it, weight(t) = cubic(t / s) with a = -0.5, divided by their sum, then rounded
// to 22 fractional bits. Each pass rounds and clips to 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardloom/data/image/image.h"

namespace shardloom::data::resample {

inline constexpr int kFractionBits = 22;

// What one output position of an axis reads: taps `first[i]` and the following, `count[i]` of them.
struct Axis {
  int in_size = 0;
  int out_size = 0;
  int max_count = 0;
  std::vector<int> first;
  std::vector<int> count;
  std::vector<int32_t> weights;  // out_size rows of max_count, zero beyond count[i]

  const int32_t* weights_of(int i) const { return &weights[static_cast<size_t>(i) * max_count]; }
};
Axis plan_axis(int in_size, int out_size);

// Rows of packed RGB. `row_bytes` counts the pixels only; `end` is the end of memory that may be
// read.
struct Rows {
  const uint8_t* data;
  const uint8_t* end;
  size_t stride;
  size_t row_bytes;
  int height;

  const uint8_t* row(int y) const { return data + static_cast<size_t>(y) * stride; }
};

// Each row of `in` becomes a row of `out`, which must have kRowSlack writable bytes behind its
// pixels.
inline constexpr size_t kRowSlack = 1;
void horizontal_scalar(const Axis& axis, const Rows& in, uint8_t* out, size_t out_stride);
void horizontal_avx2(const Axis& axis, const Rows& in, uint8_t* out, size_t out_stride);

// in.height = axis.in_size; writes axis.out_size rows of in.row_bytes without padding.
void vertical_scalar(const Axis& axis, const Rows& in, uint8_t* out);
void vertical_avx2(const Axis& axis, const Rows& in, uint8_t* out);

// Pixels [begin, end) of one row; the ends of rows that the wide kernel must not touch.
void horizontal_span_scalar(const Axis& axis, const uint8_t* in, uint8_t* out, int begin, int end);

enum class Path { kScalar, kFastest };
RgbImage resize(const RgbImage& image, int width, int height, Path path);

}  // namespace shardloom::data::resample
