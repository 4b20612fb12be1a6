// metrics.jsonl: what a line says, and what a resumed run keeps of the file.
#include "shardloom/trainer/metrics/metrics_jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"
#include "tests/metrics/sample_metrics.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> iterations(const std::filesystem::path& folder) {
  std::vector<int64_t> numbers;
  for (const std::string& line : split(read_file(folder / kMetricsFileName), '\n')) {
    if (!line.empty()) numbers.push_back(Json::parse(line).at("iteration"));
  }
  return numbers;
}

void run(const std::filesystem::path& folder, int64_t first, int64_t last) {
  JsonlSink sink(folder, first);
  for (int64_t i = first; i <= last; ++i) sink.step(sample_step(i));
}

TEST(MetricsJsonLine, HoldsEveryFieldInOrder) {
  EXPECT_EQ(metrics_json_line(sample_step(3)),
            R"({"iteration":3,"loss":3.509728,"grad_norm":1.0,"lr":1e-05,"elapsed_ms":607.2,)"
            R"("consumed_samples":6,"tokens":1234,"memory_allocated":3221225472,)"
            R"("memory_reserved":4294967296})"
            "\n");
}

TEST(MetricsJsonLine, KeepsFullPrecision) {
  StepMetrics metrics = sample_step(1);
  metrics.loss = 0.1 + 0.2;
  metrics.grad_norm = 1.0 / 3.0;
  metrics.learning_rate = std::numeric_limits<double>::denorm_min();
  const Json line = Json::parse(metrics_json_line(metrics));
  EXPECT_EQ(line.at("loss").get<double>(), metrics.loss);
  EXPECT_EQ(line.at("grad_norm").get<double>(), metrics.grad_norm);
  EXPECT_EQ(line.at("lr").get<double>(), metrics.learning_rate);
}

TEST(MetricsJsonLine, ValuesThatAreNotFiniteAreNullAndNamed) {
  StepMetrics metrics = sample_step(1);
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = -std::numeric_limits<double>::infinity();
  const Json line = Json::parse(metrics_json_line(metrics));
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
  EXPECT_EQ(line.at("non_finite"), Json({{"loss", "nan"}, {"grad_norm", "-inf"}}));
}

TEST(MetricsJsonLine, OptionalFieldsAppearWhenThereIsSomethingToTell) {
  StepMetrics metrics = sample_step(1);
  metrics.aux_loss = 0.5;
  metrics.skipped_samples = 3;
  metrics.samples_without_target = 1;
  const Json line = Json::parse(metrics_json_line(metrics));
  EXPECT_EQ(line.at("aux_loss"), 0.5);
  EXPECT_EQ(line.at("skipped_samples"), 3);
  EXPECT_EQ(line.at("samples_without_target"), 1);
  EXPECT_FALSE(line.contains("expert_load"));
  EXPECT_FALSE(line.contains("offload"));
}

TEST(MetricsJsonLine, ExpertLoadAndOffload) {
  StepMetrics metrics = sample_step(1);
  metrics.expert_load = {{1.5, 2.25}, {0, 3}};
  metrics.offload = {1024, 512, 1, 0.25};
  const Json line = Json::parse(metrics_json_line(metrics));
  EXPECT_EQ(line.at("expert_load"), Json({{"max_over_mean", {1.5, 2.25}}, {"unused", {0, 3}}}));
  EXPECT_EQ(line.at("offload"), Json({{"bytes_to_host", 1024},
                                      {"bytes_to_device", 512},
                                      {"late_fetches", 1},
                                      {"wait_ms", 0.25}}));
}

TEST(MetricsJsonLine, Validation) {
  EXPECT_EQ(metrics_json_line(ValidationMetrics{.iteration = 4, .steps = 2, .loss = 1.5}),
            "{\"iteration\":4,\"validation_steps\":2,\"validation_loss\":1.5}\n");
}

TEST(JsonlSink, LinesAreThereAsSoonAsTheyAreWritten) {
  const TemporaryFolder folder;
  JsonlSink sink(folder.path() / "new" / "metrics", 1);
  sink.step(sample_step(1));
  EXPECT_THAT(iterations(folder.path() / "new" / "metrics"), ElementsAre(1));
  sink.step(sample_step(2));
  EXPECT_THAT(iterations(folder.path() / "new" / "metrics"), ElementsAre(1, 2));
}

TEST(JsonlSink, ResumeDropsTheStepsThatAreDoneAgain) {
  const TemporaryFolder folder;
  run(folder.path(), 1, 6);
  run(folder.path(), 4, 5);
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 2, 3, 4, 5));
}

TEST(JsonlSink, ResumeKeepsTheBytesOfOlderLines) {
  const TemporaryFolder folder;
  const std::string old = "{\"iteration\": 1,  \"loss\": 1.50, \"note\": \"by hand\"}\n";
  folder.write(kMetricsFileName, old);
  run(folder.path(), 2, 2);
  EXPECT_EQ(read_file(folder.path() / kMetricsFileName), old + metrics_json_line(sample_step(2)));
}

TEST(JsonlSink, ResumeDropsALineThatWasCutOff) {
  const TemporaryFolder folder;
  folder.write(kMetricsFileName, metrics_json_line(sample_step(1)) + "{\"iteration\":2,\"lo");
  run(folder.path(), 3, 3);
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 3));
  folder.write(kMetricsFileName, "no json\n[]\n{}\n{\"iteration\":null}\n{\"iteration\":1}");
  run(folder.path(), 3, 3);
  EXPECT_THAT(iterations(folder.path()), ElementsAre(3));
}

TEST(JsonlSink, ANewRunStartsOver) {
  const TemporaryFolder folder;
  run(folder.path(), 1, 6);
  run(folder.path(), 1, 2);
  EXPECT_THAT(iterations(folder.path()), ElementsAre(1, 2));
}

TEST(JsonlSink, FolderThatCannotBeMadeIsAConfigError) {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "x");
  try {
    JsonlSink sink(file, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("metrics_dir"));
    EXPECT_THAT(error.what(), HasSubstr(file.string()));
  }
}

TEST(AppendFile, AFullDiskEndsTheMetricsAndNotTheRun) {
  AppendFile file("/dev/full");
  ::testing::internal::CaptureStderr();
  file.append("x\n");
  file.append("y\n");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("cannot write /dev/full: No space left on device"));
  EXPECT_EQ(text.find("cannot write"), text.rfind("cannot write"));
}

}  // namespace
}  // namespace shardloom::trainer
