// The sinks of a run together.
#include "shardloom/trainer/metrics/sinks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/trainer/metrics/metrics_jsonl.h"
#include "tests/metrics/event_file_reader.h"
#include "tests/metrics/sample_metrics.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string console_text(MetricsOptions options, const std::function<void(ConsoleSink&)>& use) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "console").string();
  std::FILE* file = std::fopen(path.c_str(), "w");
  {
    ConsoleSink sink(std::move(options), file, sample_time);
    use(sink);
  }
  std::fclose(file);
  return read_file(path);
}

TEST(ConsoleSink, PrintsTheLogLineWithItsPrefix) {
  const std::string text = console_text({}, [](ConsoleSink& sink) { sink.step(sample_step(1)); });
  EXPECT_EQ(text, log_prefix({}, sample_time()) + step_line(sample_step(1), sample_time()) + "\n");
}

TEST(ConsoleSink, KeepsToTheLogInterval) {
  const std::string text = console_text({.log_interval = 10}, [](ConsoleSink& sink) {
    for (int64_t i = 1; i <= 25; ++i) sink.step(sample_step(i));
  });
  EXPECT_THAT(split(text, '\n'),
              ElementsAre(HasSubstr("iteration       10/"), HasSubstr("iteration       20/"), ""));
}

TEST(ConsoleSink, MegatronsLineStandsForItsInterval) {
  const std::string text =
      console_text({.line_shape = LineShape::kMegatron, .log_interval = 2}, [](ConsoleSink& sink) {
        for (int64_t i = 1; i <= 4; ++i) {
          StepMetrics step = sample_step(i);
          step.loss = static_cast<double>(i);
          sink.step(step);
        }
      });
  EXPECT_THAT(split(text, '\n'),
              ElementsAre(HasSubstr("loss: 1.500000E+00"), HasSubstr("loss: 3.500000E+00"), ""));
}

TEST(ConsoleSink, PrintsValidations) {
  const std::string text = console_text({.log_interval = 10}, [](ConsoleSink& sink) {
    sink.validation({.iteration = 3, .steps = 1, .loss = 2});
  });
  EXPECT_THAT(text, HasSubstr("=>  [2026-10-20 10:00:00] ** validation after iteration 3 **"));
}

TEST(MetricsSinks, ConsoleOnlyWithoutAFolder) {
  ::testing::internal::CaptureStdout();
  MetricsSinks::make({}).step(sample_step(5));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), StartsWith("[Rank 0 | Local Rank 0] "));
}

TEST(MetricsSinks, ARankThatTellsItsMemoryPrintsThatLineAndNoOther) {
  const MemoryMetrics memory{.rank = 1, .iteration = 2, .max_allocated = 1 << 20};
  ::testing::internal::CaptureStdout();
  MetricsSinks sinks = MetricsSinks::memory_only();
  sinks.step(sample_step(1));
  sinks.validation({.iteration = 1, .steps = 1, .loss = 2});
  sinks.memory(memory);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), memory_line(memory) + "\n");
}

TEST(MetricsSinks, EverySinkGetsEveryStep) {
  const TemporaryFolder folder;
  ::testing::internal::CaptureStdout();
  MetricsOptions options;
  options.log_interval = 2;
  options.metrics_dir = folder.path();
  MetricsSinks sinks = MetricsSinks::make(options);
  for (int64_t i = 1; i <= 4; ++i) sinks.step(sample_step(i));
  sinks.validation({.iteration = 4, .steps = 1, .loss = 2});

  EXPECT_EQ(split(::testing::internal::GetCapturedStdout(), '\n').size(), 3U + 1);
  EXPECT_EQ(split(read_file(folder.path() / kMetricsFileName), '\n').size(), 5U + 1);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename() == kMetricsFileName) continue;
    EXPECT_EQ(read_event_file(read_file(entry.path())).size(), 1U + 5);
  }
}

}  // namespace
}  // namespace shardloom::trainer
