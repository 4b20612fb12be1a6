// The loss of two runs and, below it, their relative error step by step.
#pragma once

#include <string>

#include "shardloom/study/chart.h"
#include "shardloom/study/results.h"

namespace shardloom::study {

struct LossPlot {
  std::string name;  // of the file, without .svg
  Chart loss;
  Chart error;
};

// `candidate` has a comparison with `base`.
LossPlot loss_plot(const Result& base, const Result& candidate);

// Both charts, one above the other, as one picture with a white ground.
std::string picture(const LossPlot& plot);

}  // namespace shardloom::study
