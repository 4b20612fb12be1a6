// Line charts as self-contained SVG text: no script, no font or picture from outside.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardloom::study {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x ascending; a y that is not finite is a gap
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_y = false;  // values <= 0 are drawn on the lower edge
  std::vector<Series> series;
  struct Line {
    double y = 0;
    std::string label;
  };
  std::optional<Line> horizontal;  // "2 %"
};

// An <svg> element with a viewBox, axes with round ticks, a legend and titles, readable in a
// light and in a dark page. Long series are thinned to the pixels without losing their extremes.
std::string svg(const Chart& chart);

}  // namespace shardloom::study
