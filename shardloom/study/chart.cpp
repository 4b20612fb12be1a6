#include "shardloom/study/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "shardloom/study/axis.h"
#include "shardloom/study/html.h"

namespace shardloom::study {
namespace {

constexpr double kWidth = 880;
constexpr double kPlotHeight = 270;
constexpr double kRight = 24;
constexpr double kTitleHeight = 30;
constexpr double kLegendRow = 20;
constexpr double kBottom = 50;
constexpr double kExtreme = 1e150;  // the span of an axis must not overflow
constexpr double kCharacter = 6.7;  // width at 12 px
constexpr double kLegendMark = 24;
constexpr double kLegendGap = 20;
// Of middle lightness, so that they stand out on white and on black.
constexpr std::array kColours = {"#3b82d6", "#e0762e", "#2f9e62", "#c8508f",
                                 "#8b6cd9", "#a8861a", "#1f9fb0", "#d4474f"};

using Points = std::vector<std::pair<double, double>>;

struct Frame {
  double left = 0;
  double top = 0;
  Axis x;
  Axis y;
  double width() const { return kWidth - kRight - left; }
  double bottom() const { return top + kPlotHeight; }
  double x_of(double value) const { return left + x.position(value) * width(); }
  double y_of(double value) const { return bottom() - y.position(value) * kPlotHeight; }
};

size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

double text_width(const std::string& text) {
  return kCharacter * static_cast<double>(characters(text));
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool empty() const { return low > high; }
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Axis x_axis(const Chart& chart) {
  Range range;
  bool whole = true;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      range.add(x);
      whole = whole && x == std::floor(x);
    }
  }
  return range.empty() ? linear_axis(0, 1, 2, true) : linear_axis(range.low, range.high, 10, whole);
}

Axis y_axis(const Chart& chart) {
  Range range;
  const auto add = [&](double y) {
    if (std::isfinite(y) && (!chart.log_y || y > 0))
      range.add(std::clamp(y, chart.log_y ? 1 / kExtreme : -kExtreme, kExtreme));
  };
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) add(y);
  }
  if (chart.horizontal) add(chart.horizontal->y);
  if (range.empty()) return chart.log_y ? log_axis(0.1, 1, 5) : rounded_axis(0, 1, 5);
  return chart.log_y ? log_axis(range.low, range.high, 6) : rounded_axis(range.low, range.high, 6);
}

// First, lowest, highest and last point of what falls on one pixel: what a drawing of all would
// show.
Points thinned(const Points& points, const Frame& frame) {
  Points kept;
  for (auto begin = points.begin(); begin != points.end();) {
    const double pixel = std::floor(frame.x_of(begin->first));
    const auto end = std::find_if(begin, points.end(), [&](const auto& point) {
      return std::floor(frame.x_of(point.first)) != pixel || !std::isfinite(point.second);
    });
    if (begin == end) {  // a gap
      kept.push_back(*begin++);
      continue;
    }
    const auto lower = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [low, high] = std::minmax_element(begin, end, lower);
    std::array chosen = {begin, low, high, std::prev(end)};
    std::sort(chosen.begin(), chosen.end());
    const auto last = std::unique(chosen.begin(), chosen.end());
    for (auto it = chosen.begin(); it != last; ++it) kept.push_back(**it);
    begin = end;
  }
  return kept;
}

// A stretch of one point gets a line of no length, which round caps make a dot.
std::string path_data(const Points& points, const Frame& frame) {
  std::string data;
  bool pen_down = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& [x, y] = points[i];
    if (!std::isfinite(y)) {
      pen_down = false;
      continue;
    }
    data += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', frame.x_of(x), frame.y_of(y));
    const bool is_last = i + 1 == points.size() || !std::isfinite(points[i + 1].second);
    if (!pen_down && is_last) data += "h0";
    pen_down = true;
  }
  return data;
}

const char* colour(size_t index) { return kColours[index % kColours.size()]; }

// The first of several is the one that others are held against: wide, so that it shows below them.
std::string stroke(const Chart& chart, size_t index) {
  const bool is_wide = index == 0 && chart.series.size() > 1;
  std::string text =
      fmt::format("stroke=\"{}\" stroke-width=\"{}\"", colour(index), is_wide ? 3.2 : 1.4);
  if (is_wide) text += " stroke-opacity=\"0.6\"";
  if (index >= kColours.size()) text += " stroke-dasharray=\"6 4\"";
  return text;
}

std::string draw_x_axis(const Frame& frame, const std::string& label) {
  std::string text;
  for (const Axis::Tick& tick : frame.x.ticks) {
    const double x = frame.x_of(tick.value);
    text += fmt::format("<path d=\"M{0:.1f} {1:.1f}v5\" class=\"axis\"/>", x, frame.bottom());
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x,
                        frame.bottom() + 19, escape(tick.label));
  }
  return text + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                            frame.left + frame.width() / 2, frame.bottom() + 40, escape(label));
}

std::string draw_y_axis(const Frame& frame, const std::string& label) {
  std::string text;
  for (const Axis::Tick& tick : frame.y.ticks) {
    const double y = frame.y_of(tick.value);
    text += fmt::format("<path d=\"M{:.1f} {:.1f}h{:.1f}\" class=\"grid\"/>", frame.left, y,
                        frame.width());
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                        frame.left - 8, y + 4, escape(tick.label));
  }
  const double middle = frame.top + kPlotHeight / 2;
  return text + fmt::format(
                    "<text transform=\"translate(14 {:.1f}) rotate(-90)\" "
                    "text-anchor=\"middle\">{}</text>\n",
                    middle, escape(label));
}

std::string draw_series(const Chart& chart, const Frame& frame) {
  std::string text;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Points points = thinned(chart.series[i].points, frame);
    text += fmt::format(
        "<path d=\"{}\" fill=\"none\" {} stroke-linejoin=\"round\" "
        "stroke-linecap=\"round\"/>\n",
        path_data(points, frame), stroke(chart, i));
  }
  return text;
}

std::string draw_horizontal(const Chart& chart, const Frame& frame) {
  if (!chart.horizontal) return {};
  const double y = frame.y_of(chart.horizontal->y);
  return fmt::format(
      "<path d=\"M{:.1f} {:.1f}h{:.1f}\" class=\"limit\"/>"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" class=\"limit-label\">{}</text>\n",
      frame.left, y, frame.width(), kWidth - kRight - 4, y - 5, escape(chart.horizontal->label));
}

struct LegendPlace {
  double x = 0;
  int row = 0;
};

std::vector<LegendPlace> legend_places(const Chart& chart) {
  std::vector<LegendPlace> places;
  LegendPlace next{.x = 30};
  for (const Series& series : chart.series) {
    const double width = kLegendMark + text_width(series.label);
    if (next.x + width > kWidth - kRight && next.x > 30) next = {.x = 30, .row = next.row + 1};
    places.push_back(next);
    next.x += width + kLegendGap;
  }
  return places;
}

std::string draw_legend(const Chart& chart, const std::vector<LegendPlace>& places) {
  std::string text;
  for (size_t i = 0; i < places.size(); ++i) {
    const double y = kTitleHeight + kLegendRow * places[i].row + 8;
    text += fmt::format(
        "<path d=\"M{:.1f} {:.1f}h18\" fill=\"none\" {}/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        places[i].x, y, stroke(chart, i), places[i].x + kLegendMark, y + 4,
        escape(chart.series[i].label));
  }
  return text;
}

Frame make_frame(const Chart& chart, int legend_rows) {
  Frame frame{.x = x_axis(chart), .y = y_axis(chart)};
  double widest = 0;
  for (const Axis::Tick& tick : frame.y.ticks) widest = std::max(widest, text_width(tick.label));
  frame.left = 34 + widest;
  frame.top = kTitleHeight + kLegendRow * legend_rows + 12;
  return frame;
}

}  // namespace

std::string svg(const Chart& chart) {
  const std::vector<LegendPlace> places = legend_places(chart);
  const Frame frame = make_frame(chart, places.empty() ? 0 : places.back().row + 1);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\">\n"
      "<title>{2}</title>\n"
      "<style>.axis{{stroke:currentColor;fill:none}}.grid{{stroke:currentColor;stroke-opacity:.15;"
      "fill:none}}.limit{{stroke:#d4474f;stroke-dasharray:6 4;fill:none}}"
      ".limit-label{{fill:#d4474f}}</style>\n"
      "<text x=\"30\" y=\"18\" font-size=\"14\" font-weight=\"600\">{2}</text>\n",
      kWidth, frame.bottom() + kBottom, escape(chart.title));
  text += draw_legend(chart, places);
  text += draw_x_axis(frame, chart.x_label);
  text += draw_y_axis(frame, chart.log_y ? chart.y_label + " (log scale)" : chart.y_label);
  text += fmt::format("<path d=\"M{:.1f} {:.1f}v{:.1f}h{:.1f}\" class=\"axis\"/>\n", frame.left,
                      frame.top, kPlotHeight, frame.width());
  text += draw_series(chart, frame);
  text += draw_horizontal(chart, frame);
  return text + "</svg>\n";
}

}  // namespace shardloom::study
