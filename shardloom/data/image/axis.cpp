#include <algorithm>
#include <cmath>

#include "shardloom/data/image/resample.h"

namespace shardloom::data::resample {
namespace {

constexpr double kSupport = 2.0;

double cubic(double t) {
  constexpr double a = -0.5;
  t = std::abs(t);
  if (t < 1.0) return ((a + 2.0) * t - (a + 3.0)) * t * t + 1;
  if (t < 2.0) return (((t - 5) * t + 8) * t - 4) * a;
  return 0.0;
}

}  // namespace

// Every operation and its order are Pillow's: a weight that differs in its last bit changes pixels.
Axis plan_axis(int in_size, int out_size) {
  Axis axis;
  axis.in_size = in_size;
  axis.out_size = out_size;
  const double scale = static_cast<double>(static_cast<float>(in_size)) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kSupport * filter_scale;
  const double inverse = 1.0 / filter_scale;
  for (int i = 0; i < out_size; ++i) {
    const double center = (i + 0.5) * scale;
    // NOLINTNEXTLINE(bugprone-incorrect-roundings)
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    // NOLINTNEXTLINE(bugprone-incorrect-roundings)
    const int end = std::min(static_cast<int>(center + support + 0.5), in_size);
    axis.first.push_back(first);
    axis.count.push_back(end - first);
    axis.max_count = std::max(axis.max_count, end - first);
  }
  axis.weights.resize(static_cast<size_t>(out_size) * axis.max_count);
  std::vector<double> row(axis.max_count);
  for (int i = 0; i < out_size; ++i) {
    const double center = (i + 0.5) * scale;
    double sum = 0;
    for (int k = 0; k < axis.count[i]; ++k) {
      row[k] = cubic((k + axis.first[i] - center + 0.5) * inverse);
      sum += row[k];
    }
    int32_t* weights = &axis.weights[static_cast<size_t>(i) * axis.max_count];
    for (int k = 0; k < axis.count[i]; ++k) {
      const double weight = (sum != 0.0 ? row[k] / sum : row[k]) * (1 << kFractionBits);
      weights[k] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
  }
  return axis;
}

}  // namespace shardloom::data::resample
