// The learning rate as a pure function of the iteration and the settings: nothing to save, nothing
// to restart. The formulas are those of MindSpeed-MM's pure-FSDP2 scheduler.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shardloom::optim {

enum class LrDecayStyle { kConstant, kLinear, kCosine };

// "constant", "linear" or "cosine"; throws ConfigError otherwise.
LrDecayStyle parse_lr_decay_style(std::string_view name);

struct LrScheduleOptions {
  double lr = 5e-5;       // at the end of the warm-up
  double lr_start = 0.0;  // of the first iteration, when there is a warm-up
  double lr_min = 0.0;    // at the end of a cosine
  LrDecayStyle decay_style = LrDecayStyle::kConstant;
  double lr_decay_ratio = 1.0;             // the cosine ends after this part of train_iters
  double lr_warmup_ratio = 0.0;            // part of train_iters
  std::optional<int64_t> lr_warmup_iters;  // instead of the ratio
  int64_t train_iters = 0;
};

// With T = train_iters, W = warm-up iterations, D = floor(T * lr_decay_ratio), k = iteration - 1:
//   k < W      lr_start + (lr - lr_start) * k / W
//   constant   lr
//   linear     max(1e-7, lr * (T - k) / max(1, T - W)); as in the reference, lr_min and
//   lr_decay_ratio play no part cosine     lr_min + (lr - lr_min) * (1 + cos(pi * (k - W) / max(1,
//   D - W))) / 2; lr_min for k > D
class LrSchedule {
 public:
  explicit LrSchedule(const LrScheduleOptions& options);

  // Of a 1-based iteration; those past train_iters go on by the same formulas.
  double at(int64_t iteration) const;

  int64_t warmup_iters() const { return warmup_iters_; }

 private:
  double decayed(int64_t k) const;

  LrScheduleOptions options_;
  int64_t warmup_iters_;
  int64_t decay_iters_;
};

}  // namespace shardloom::optim
