#include "shardloom/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::optim {
namespace {

constexpr double kLinearFloor = 1e-7;

// The product in double precision, cut like Python's int().
int64_t part_of(int64_t iterations, double ratio) {
  return static_cast<int64_t>(static_cast<double>(iterations) * ratio);
}

double at_least_one(int64_t count) { return static_cast<double>(std::max<int64_t>(1, count)); }

}  // namespace

LrDecayStyle parse_lr_decay_style(std::string_view name) {
  if (name == "constant") return LrDecayStyle::kConstant;
  if (name == "linear") return LrDecayStyle::kLinear;
  if (name == "cosine") return LrDecayStyle::kCosine;
  throw ConfigError("unknown lr_decay_style \"{}\"{}; known: constant, linear, cosine", name,
                    did_you_mean(name, {"constant", "linear", "cosine"}));
}

LrSchedule::LrSchedule(const LrScheduleOptions& options)
    : options_(options),
      warmup_iters_(
          options.lr_warmup_iters.value_or(part_of(options.train_iters, options.lr_warmup_ratio))),
      decay_iters_(part_of(options.train_iters, options.lr_decay_ratio)) {}

double LrSchedule::at(int64_t iteration) const {
  const int64_t k = iteration - 1;
  if (k >= warmup_iters_) return decayed(k);
  return options_.lr_start +
         (options_.lr - options_.lr_start) * static_cast<double>(k) / at_least_one(warmup_iters_);
}

double LrSchedule::decayed(int64_t k) const {
  const LrScheduleOptions& o = options_;
  switch (o.decay_style) {
    case LrDecayStyle::kConstant:
      return o.lr;
    case LrDecayStyle::kLinear:
      return std::max(kLinearFloor, o.lr * static_cast<double>(o.train_iters - k) /
                                        at_least_one(o.train_iters - warmup_iters_));
    case LrDecayStyle::kCosine: {
      if (k > decay_iters_) return o.lr_min;
      const double progress =
          static_cast<double>(k - warmup_iters_) / at_least_one(decay_iters_ - warmup_iters_);
      return o.lr_min + (o.lr - o.lr_min) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    }
  }
  throw InternalError("lr_decay_style {}", static_cast<int>(o.decay_style));
}

}  // namespace shardloom::optim
