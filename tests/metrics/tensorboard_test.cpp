// TensorBoard events: the checksum against published values, and files read back by an independent
// reader.
#include "shardloom/trainer/metrics/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shardloom/base/files.h"
#include "tests/metrics/event_file_reader.h"
#include "tests/metrics/sample_metrics.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST(Crc32c, MatchesPublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(TensorBoardSink, WritesScalarsThatReadBack) {
  const TemporaryFolder folder;
  TensorBoardSink sink(folder.path() / "metrics", 1, sample_time);
  StepMetrics metrics = sample_step(7);
  metrics.aux_loss = 0.5;
  metrics.elapsed_ms = 500;
  sink.step(metrics);
  sink.validation({.iteration = 7, .steps = 2, .loss = 1.25});

  const auto events = read_event_file(read_file(sink.path()));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_NEAR(events[0].wall_time, 1792490400.123, 1e-3);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_NEAR(events[1].wall_time, 1792490400.123, 1e-3);
  EXPECT_THAT(events[1].scalars,
              UnorderedElementsAre(
                  Pair("loss", 3.509728F), Pair("aux_loss", 0.5F), Pair("grad_norm", 1.0F),
                  Pair("lr", 1e-5F), Pair("elapsed_ms", 500.0F), Pair("tokens_per_second", 2468.0F),
                  Pair("memory_allocated_mib", 3072.0F), Pair("memory_reserved_mib", 4096.0F)));
  EXPECT_EQ(events[2].step, 7);
  EXPECT_THAT(events[2].scalars, UnorderedElementsAre(Pair("validation_loss", 1.25F)));
}

TEST(TensorBoardSink, FileNameIsWhatTensorBoardLooksFor) {
  const TemporaryFolder folder;
  const TensorBoardSink sink(folder.path(), 1, sample_time);
  EXPECT_THAT(sink.path().filename().string(), StartsWith("events.out.tfevents.1792490400."));
}

TEST(TensorBoardSink, ResumeForgetsWhatEarlierFilesSayOfLaterSteps) {
  const TemporaryFolder folder;
  const TensorBoardSink sink(folder.path(), 42, sample_time);
  const auto events = read_event_file(read_file(sink.path()));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].step, 42);
  EXPECT_EQ(events[1].session_status, 1);  // SessionLog.START
}

TEST(TensorBoardSink, KeepsValuesThatAreNotFinite) {
  const TemporaryFolder folder;
  TensorBoardSink sink(folder.path(), 1, sample_time);
  StepMetrics metrics = sample_step(1);
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.elapsed_ms = 0;
  sink.step(metrics);
  const auto events = read_event_file(read_file(sink.path()));
  EXPECT_TRUE(std::isnan(events.at(1).scalars.at("loss")));
  EXPECT_EQ(events.at(1).scalars.count("tokens_per_second"), 0U);
}

TEST(EventFileReader, NoticesEveryFlippedBit) {
  const std::string record = event_record(std::string("\x10\x07", 2));
  ASSERT_EQ(read_event_file(record).at(0).step, 7);
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::string damaged = record;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(read_event_file(damaged), std::runtime_error) << "bit " << bit;
  }
}

}  // namespace
}  // namespace shardloom::trainer
