// Sums, maxima and exponentials of one row of floats. They run over lanes, because a single sum or
// maximum would not vectorise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shardloom/ops/cpu/exp.h"

namespace shardloom::ops {

constexpr int kLanes = 8;

// `highest` or the largest of x[0..n).
inline float max_of_row(const float* x, int64_t n, float highest) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, highest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
  }
  for (const float lane : lanes) highest = lane > highest ? lane : highest;
  for (; i < n; ++i) highest = x[i] > highest ? x[i] : highest;
  return highest;
}

// x <- exp(x - shift); returns the sum.
inline float exp_row(float* x, int64_t n, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const float e = fast_exp(x[i + k] - shift);
      x[i + k] = e;
      lanes[k] += e;
    }
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += x[i] = fast_exp(x[i] - shift);
  return sum;
}

// The sum of exp(x - shift).
inline float sum_of_exp(const float* x, int64_t n, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += fast_exp(x[i + k] - shift);
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += fast_exp(x[i] - shift);
  return sum;
}

inline float dot_of_rows(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += a[i + k] * b[i + k];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace shardloom::ops
