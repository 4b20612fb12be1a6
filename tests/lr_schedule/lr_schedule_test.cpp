// Learning rate schedules: the golden trajectory, and values worked out by hand at the seams.
#include "shardloom/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"

namespace shardloom::optim {
namespace {

// The same formula in another program may round the last bits otherwise.
constexpr double kRelative = 1e-12;

void expect_close(double actual, double expected, int64_t iteration) {
  EXPECT_NEAR(actual, expected, kRelative * std::abs(expected)) << "iteration " << iteration;
}

LrScheduleOptions options_with(LrDecayStyle style) {
  LrScheduleOptions options;
  options.lr = 1e-3;
  options.decay_style = style;
  options.train_iters = 100;
  return options;
}

TEST(LrSchedule, MatchesTheGoldenTrajectory) {
  const Json golden =
      read_json_file(SHARDLOOM_TEST_DATA "/lr_schedule/cosine_200.json", ExitCode::kData);
  LrScheduleOptions options = options_with(LrDecayStyle::kCosine);
  options.lr = golden.at("lr");
  options.lr_min = golden.at("lr_min");
  options.train_iters = golden.at("train_iters");
  options.lr_warmup_ratio = 0.1;
  const LrSchedule schedule(options);
  EXPECT_EQ(schedule.warmup_iters(), golden.at("warmup_steps"));
  ASSERT_EQ(golden.at("values").size(), 200U);
  for (const Json& row : golden.at("values")) {
    expect_close(schedule.at(row.at(0)), row.at(1), row.at(0));
  }
}

TEST(LrSchedule, WarmUpIterationsReplaceTheRatio) {
  LrScheduleOptions options = options_with(LrDecayStyle::kCosine);
  options.lr_warmup_ratio = 0.5;
  options.lr_warmup_iters = 10;
  EXPECT_EQ(LrSchedule(options).warmup_iters(), 10);
  options.lr_warmup_iters = 0;
  expect_close(LrSchedule(options).at(1), 1e-3, 1);
}

TEST(LrSchedule, WarmUpRatioIsCutDownward) {
  LrScheduleOptions options = options_with(LrDecayStyle::kConstant);
  options.train_iters = 2000;
  options.lr_warmup_ratio = 0.1;
  EXPECT_EQ(LrSchedule(options).warmup_iters(), 200);
  options.train_iters = 19;
  EXPECT_EQ(LrSchedule(options).warmup_iters(), 1);
  options.train_iters = 100;
  options.lr_warmup_ratio = 0.29;  // 100 * 0.29 is 28.999999999999996 in double precision
  EXPECT_EQ(LrSchedule(options).warmup_iters(), 28);
}

TEST(LrSchedule, WarmUpStartsAtLrStart) {
  LrScheduleOptions options = options_with(LrDecayStyle::kConstant);
  options.lr_start = 2e-4;
  options.lr_warmup_iters = 4;
  const LrSchedule schedule(options);
  const double expected[] = {2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3};
  for (int64_t i = 0; i < 6; ++i) expect_close(schedule.at(i + 1), expected[i], i + 1);
}

TEST(LrSchedule, ConstantStays) {
  const LrSchedule schedule(options_with(LrDecayStyle::kConstant));
  for (const int64_t iteration : {1, 2, 50, 100, 1000}) EXPECT_EQ(schedule.at(iteration), 1e-3);
}

TEST(LrSchedule, LinearFallsToItsFloor) {
  LrScheduleOptions options = options_with(LrDecayStyle::kLinear);
  options.lr_warmup_iters = 20;
  options.lr_min = 5e-4;          // plays no part
  options.lr_decay_ratio = 0.25;  // neither
  const LrSchedule schedule(options);
  expect_close(schedule.at(21), 1e-3, 21);
  expect_close(schedule.at(61), 1e-3 * 40 / 80, 61);
  expect_close(schedule.at(100), 1e-3 / 80, 100);
  EXPECT_EQ(schedule.at(101), 1e-7);
  EXPECT_EQ(schedule.at(5000), 1e-7);
}

TEST(LrSchedule, CosineEndsAtLrMinAfterItsPart) {
  LrScheduleOptions options = options_with(LrDecayStyle::kCosine);
  options.lr_min = 1e-4;
  options.lr_warmup_iters = 10;
  options.lr_decay_ratio = 0.5;
  const LrSchedule schedule(options);
  expect_close(schedule.at(11), 1e-3, 11);
  expect_close(schedule.at(31), 5.5e-4, 31);  // half way
  expect_close(schedule.at(21), 1e-4 + 9e-4 * 0.5 * (1 + std::sqrt(0.5)), 21);
  expect_close(schedule.at(51), 1e-4, 51);
  EXPECT_EQ(schedule.at(52), 1e-4);
  EXPECT_EQ(schedule.at(100), 1e-4);
}

TEST(LrSchedule, DecayThatEndsBeforeTheWarmUp) {
  LrScheduleOptions options = options_with(LrDecayStyle::kCosine);
  options.lr_min = 1e-4;
  options.lr_warmup_iters = 60;
  options.lr_decay_ratio = 0.5;
  const LrSchedule schedule(options);
  expect_close(schedule.at(60), 1e-3 * 59 / 60, 60);
  EXPECT_EQ(schedule.at(61), 1e-4);
}

TEST(LrSchedule, NoIterationsAtAll) {
  for (const auto style : {LrDecayStyle::kConstant, LrDecayStyle::kLinear, LrDecayStyle::kCosine}) {
    LrScheduleOptions options = options_with(style);
    options.train_iters = 0;
    options.lr_warmup_ratio = 0.1;
    EXPECT_TRUE(std::isfinite(LrSchedule(options).at(1)));
  }
}

TEST(LrSchedule, IsAPureFunctionOfTheIteration) {
  LrScheduleOptions options = options_with(LrDecayStyle::kCosine);
  options.train_iters = 2000;
  options.lr_warmup_iters = 200;
  const LrSchedule whole(options);
  const LrSchedule resumed(options);  // asked for the first time at iteration 150
  for (int64_t iteration = 150; iteration <= 2000; ++iteration) {
    ASSERT_EQ(whole.at(iteration), resumed.at(iteration));
  }
  expect_close(resumed.at(151), 1e-3 * 150 / 200, 151);
}

TEST(LrDecayStyle, NamesAreChecked) {
  EXPECT_EQ(parse_lr_decay_style("constant"), LrDecayStyle::kConstant);
  EXPECT_EQ(parse_lr_decay_style("linear"), LrDecayStyle::kLinear);
  EXPECT_EQ(parse_lr_decay_style("cosine"), LrDecayStyle::kCosine);
  try {
    parse_lr_decay_style("cosin");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean cosine?"), std::string::npos);
  }
}

}  // namespace
}  // namespace shardloom::optim
