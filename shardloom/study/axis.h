// One axis of a chart: its range, and ticks at round values.
#pragma once

#include <string>
#include <vector>

namespace shardloom::study {

struct Axis {
  struct Tick {
    double value = 0;
    std::string label;
  };
  double low = 0;
  double high = 1;
  bool log = false;
  std::vector<Tick> ticks;  // within [low, high], ascending

  // 0 at the low end, 1 at the high end; a value outside (on a log axis also <= 0) is at an end.
  double position(double value) const;
};

// About `num_ticks` ticks in steps of 1, 2 or 5 times a power of ten; `whole`: no fractions.
Axis linear_axis(double low, double high, int num_ticks, bool whole = false);
// The same with both ends on a tick.
Axis rounded_axis(double low, double high, int num_ticks);
// Ticks at powers of ten, within few decades also at 2 and 5 times them; 0 < low <= high.
Axis log_axis(double low, double high, int num_ticks);

}  // namespace shardloom::study
