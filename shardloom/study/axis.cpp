#include "shardloom/study/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardloom::study {
namespace {

const std::vector<double> kRoundFactors = {1, 2, 5};
constexpr double kFineDecades = 2.5;  // up to here a log axis has ticks at 2 and 5 too
constexpr double kLeastSpan = 1e-290;
constexpr double kLeastRelativeSpan = 1e-9;  // below it doubles have too few digits for ticks

double round_step(double span, int num_ticks) {
  const double rough = span / num_ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : kRoundFactors) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

int digits_above(double value, double step) {
  return static_cast<int>(std::floor(std::log10(value) + 1e-9) -
                          std::floor(std::log10(step) + 1e-9));
}

// Enough decimals to tell neighbours apart; `largest` is that of the axis.
std::string tick_label(double value, double step, double largest) {
  if (value == 0) return "0";
  if (largest < 1e7 && largest >= 1e-4) {
    const int decimals = static_cast<int>(std::max(0.0, -std::floor(std::log10(step) + 1e-9)));
    return fmt::format("{:.{}f}", value, decimals);
  }
  return fmt::format("{:.{}e}", value, std::max(0, digits_above(std::abs(value), step)));
}

void widen(double& low, double& high, bool whole) {
  const double largest = std::max(std::abs(low), std::abs(high));
  if (high - low > std::max(kLeastSpan, kLeastRelativeSpan * largest)) return;
  if (largest < kLeastSpan && low >= 0 && !whole) {  // nothing but zeros: no room below them
    high = 1;
    return;
  }
  double by = largest < kLeastSpan ? 0.5 : largest * 0.05;
  if (whole) by = std::max(1.0, largest * 2 * kLeastRelativeSpan);
  low -= by;
  high += by;
}

void add_ticks(Axis& axis, double step) {
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  const auto first = static_cast<int64_t>(std::ceil(axis.low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(axis.high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) {
    const double value = static_cast<double>(i) * step;
    axis.ticks.push_back({value, tick_label(value, step, largest)});
  }
}

// The nearest of 1, 2, 5 times a power of ten that is not above.
double rounded_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  double nearest = power;
  for (const double factor : kRoundFactors) {
    if (factor * power <= value * (1 + 1e-9)) nearest = factor * power;
  }
  return nearest;
}

double rounded_up(double value) {
  const double below = rounded_down(value);
  return below >= value * (1 - 1e-9) ? below : round_step(value, 1);
}

std::string log_label(double value) {
  if (value >= 1e-3 && value < 1e6) return fmt::format("{:.6g}", value);
  return fmt::format("{:.0e}", value);
}

}  // namespace

double Axis::position(double value) const {
  if (log) {
    if (value <= low) return 0;
    return std::min(1.0, std::log(value / low) / std::log(high / low));
  }
  return std::clamp((value - low) / (high - low), 0.0, 1.0);
}

Axis linear_axis(double low, double high, int num_ticks, bool whole) {
  widen(low, high, whole);
  Axis axis{.low = low, .high = high};
  const double step = round_step(high - low, num_ticks);
  add_ticks(axis, whole ? std::max(1.0, step) : step);
  return axis;
}

Axis rounded_axis(double low, double high, int num_ticks) {
  widen(low, high, false);
  const double step = round_step(high - low, num_ticks);
  Axis axis{.low = std::min(low, std::floor(low / step + 1e-9) * step),
            .high = std::max(high, std::ceil(high / step - 1e-9) * step)};
  add_ticks(axis, step);
  return axis;
}

Axis log_axis(double low, double high, int num_ticks) {
  Axis axis{.low = rounded_down(low), .high = rounded_up(high), .log = true};
  if (axis.low == axis.high) axis.high = rounded_up(axis.low * 1.5);
  const double decades = std::log10(axis.high / axis.low);
  const bool finer = decades <= kFineDecades;
  const int every = finer ? 1 : static_cast<int>(std::ceil(decades / num_ticks));
  const double first_decade = std::log10(axis.low);
  const auto first =
      static_cast<int>(finer ? std::floor(first_decade) : std::ceil(first_decade - 1e-9));
  for (int exponent = first; std::pow(10, exponent) <= axis.high * (1 + 1e-9); exponent += every) {
    for (const double factor : finer ? kRoundFactors : std::vector{1.0}) {
      const double value = factor * std::pow(10, exponent);
      if (value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9))
        axis.ticks.push_back({value, log_label(value)});
    }
  }
  return axis;
}

}  // namespace shardloom::study
