#include "shardloom/study/plots.h"

#include <fmt/format.h>

#include <cstdio>

#include "shardloom/base/error.h"

namespace shardloom::study {
namespace {

Series loss_series(const Result& run) {
  Series series{.label = run.name, .points = {}};
  for (const auto& [iteration, record] : run.log.steps)
    series.points.emplace_back(static_cast<double>(iteration), record.loss);
  return series;
}

struct Size {
  double width = 0;
  double height = 0;
};

Size size_of(const std::string& svg) {
  const size_t box = svg.find("viewBox=\"0 0 ");
  Size size;
  const bool found =
      box != std::string::npos &&
      std::sscanf(svg.c_str() + box, "viewBox=\"0 0 %lf %lf", &size.width, &size.height) == 2;
  SHARDLOOM_CHECK(found, "a chart without a viewBox");
  return size;
}

// The chart at a place inside another picture.
std::string placed(const std::string& svg, double y, const Size& size) {
  constexpr std::string_view kStart = "<svg";
  return fmt::format("<svg x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\"{}", y, size.width,
                     size.height, svg.substr(kStart.size()));
}

}  // namespace

LossPlot loss_plot(const Result& base, const Result& candidate) {
  LossPlot plot;
  plot.name = fmt::format("{}_vs_{}", base.name, candidate.name);
  plot.loss = {.title = fmt::format("Loss: {} and {}", base.name, candidate.name),
               .x_label = "iteration",
               .y_label = "loss",
               .series = {loss_series(base), loss_series(candidate)}};
  Series errors{.label = fmt::format("|{0} - {1}| / |{0}|", candidate.name, base.name),
                .points = {}};
  for (const StepError& error : candidate.comparison->errors)
    errors.points.emplace_back(static_cast<double>(error.iteration), error.percent);
  plot.error = {.title = fmt::format("Relative error of {}", candidate.name),
                .x_label = "iteration",
                .y_label = "error in %",
                .series = {std::move(errors)}};
  // The limit would flatten the curve of errors that are far below it.
  if (candidate.comparison->max.percent > kLimitPercent / 10)
    plot.error.horizontal = {kLimitPercent, fmt::format("{} %", kLimitPercent)};
  return plot;
}

std::string picture(const LossPlot& plot) {
  const std::string loss = svg(plot.loss), error = svg(plot.error);
  const Size upper = size_of(loss), lower = size_of(error);
  const double height = upper.height + lower.height;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" color=\"#1f2328\">\n<rect width=\"{0}\" height=\"{1}\" "
             "fill=\"#ffffff\"/>\n",
             upper.width, height) +
         placed(loss, 0, upper) + placed(error, upper.height, lower) + "</svg>\n";
}

}  // namespace shardloom::study
