// What happens to logs on their way: cut anywhere, torn, interleaved, drawn over.
#include <fmt/format.h>

#include "shardloom/study/log_record.h"
#include "tests/study/logs.h"

namespace shardloom::study {
namespace {

std::vector<double> losses(const RunLog& log) {
  std::vector<double> values;
  for (const auto& [iteration, record] : log.steps) values.push_back(record.loss);
  return values;
}

// The records of a text cut at every byte are a beginning of the records of the whole text, and
// what is lost inside a record is told.
void expect_no_cut_number(const std::string& first,
                          const std::string& second,
                          const std::string& begin) {
  const std::string text = first + "\n" + second;
  const std::vector<double> right = losses(parse_run_log(text + "\n", "whole"));
  ASSERT_EQ(right.size(), 2U);
  const size_t inside = text.find(begin, first.size()) + begin.size();
  for (size_t length = first.size() + 1; length <= text.size(); ++length) {
    const RunLog log = parse_run_log(text.substr(0, length), "cut");
    const std::vector<double> read = losses(log);
    ASSERT_LE(read.size(), 2U);
    for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], right[i]) << length << " bytes";
    const auto& last = log.steps.rbegin()->second;
    EXPECT_EQ(last.elapsed_ms, 12.5);
    EXPECT_EQ(last.grad_norm.value_or(1.25), 1.25);
    const bool is_lost = length >= inside && read.size() == 1;
    ASSERT_EQ(log.warnings.size(), is_lost ? 1U : 0U) << text.substr(0, length);
  }
}

TEST(LogTraps, ANumberThatIsCutIsNeverRead) {
  expect_no_cut_number(pure_line(1, "7.030000E-01"), pure_line(2, "7.123456E-01"), "] iteration ");
  expect_no_cut_number(megatron_line(1, "7.030000E-01"), megatron_line(2, "-7.123456E-01"),
                       "] iteration ");
  expect_no_cut_number(R"({"iteration":1,"loss":0.703,"grad_norm":1.25,"elapsed_ms":12.5})",
                       R"({"iteration":2,"loss":0.7123456,"grad_norm":1.25,"elapsed_ms":12.5})",
                       R"({"iteration")");
}

TEST(LogTraps, AMemoryLineIsReadOnceItHasEnded) {
  const std::string text = pure_line(1, "1.0") + "\n" + memory_line(0, "201.75", "310.25");
  for (size_t length = text.find('\n') + 1; length <= text.size(); ++length) {
    const RunLog log = parse_run_log(text.substr(0, length), "cut");
    EXPECT_EQ(log.max_allocated_mib.value_or(201.75), 201.75);
    EXPECT_FALSE(log.max_reserved_mib.has_value());
  }
  const RunLog whole = parse_run_log(text + "\r\n", "whole");
  EXPECT_EQ(whole.max_allocated_mib, 201.75);
  EXPECT_EQ(whole.max_reserved_mib, 310.25);
  EXPECT_TRUE(whole.warnings.empty());
}

// A killed process leaves a line open; what the next one prints stands behind it.
TEST(LogTraps, ARecordTornByAnotherIsLeftOut) {
  const std::string whole = pure_line(2, "2.500000E+00");
  const size_t inside = whole.find("2.500000E+00") + 4;
  for (const std::string& next : {pure_line(3, "3.0"), megatron_line(3, "3.0")}) {
    const RunLog log =
        parse_run_log(pure_line(1, "1.0") + "\n" + whole.substr(0, inside) + next + "\n", "torn");
    EXPECT_EQ(losses(log), (std::vector{1.0, 3.0}));
    ASSERT_EQ(log.warnings.size(), 1U);
    EXPECT_NE(log.warnings[0].find("line 2"), std::string::npos);
  }
}

TEST(LogTraps, RecordsAndMemoryOfSeveralRanksOnOneLine) {
  const std::string line = pure_line(1, "1.0") + memory_line(0, "5.5", "9.5") + " " +
                           pure_line(2, "2.0") + memory_line(1, "7.5", "8.5");
  const RunLog log = parse_run_log(line + "\n" + memory_line(2, "6.5", "8.0") + "\n", "glued");
  EXPECT_EQ(losses(log), (std::vector{1.0, 2.0}));
  EXPECT_EQ(log.max_allocated_mib, 7.5);
  EXPECT_EQ(log.max_reserved_mib, 8.5);  // the 9.5 may go on in what stands behind it
  EXPECT_EQ(log.warnings.size(), 1U);
}

TEST(LogTraps, ProgressBarsStandBeforeARecord) {
  const std::string bar = "\r\033[Ktrain [====      ] 5/60 1.0 it/s ETA 00:55 loss 9.0000";
  const std::string tqdm = "  1%|1         | 1/220 [00:12<43:48, 12.00s/it]";
  const RunLog log =
      parse_run_log(bar + "\r\033[K" + pure_line(1, "1.0") + "\r\n" + bar + bar + "\r\033[K" +
                        pure_line(2, "2.0") + "\n" + tqdm + megatron_line(3, "3.0") + "\n" + bar,
                    "bars");
  EXPECT_EQ(losses(log), (std::vector{1.0, 2.0, 3.0}));
  EXPECT_TRUE(log.warnings.empty());
}

TEST(LogTraps, OtherTextIsNoRecord) {
  const std::string prose =
      "Loss functions are nice: loss: 5.0 |\n"
      "at iteration 7/ 220 | loss: 8.0 |\n"
      "validation loss at iteration 100 | lm loss value: 2.5E+00 | lm loss PPL: 12.2E+00 |\n"
      " [2026-10-20 10:00:00] ** validation after iteration 100 ** | validation steps: 4 | "
      "validation loss: 9.9E+00 |\n"
      "{\"iteration\":4,\"validation_steps\":2,\"validation_loss\":9.9}\n"
      "{not json}\n[1, 2]\n{\"loss\": 3}\n";
  const RunLog log = parse_run_log(prose + pure_line(1, "1.0") + "\n" + prose, "prose");
  EXPECT_EQ(losses(log), (std::vector{1.0}));
  EXPECT_TRUE(log.warnings.empty()) << log.warnings[0];
}

TEST(LogTraps, TheFieldLossAndNoOther) {
  const RunLog log =
      parse_run_log(pure_line(1, "1.5") + "\n" + megatron_line(2, "2.5") + "\n", "fields");
  EXPECT_EQ(losses(log), (std::vector{1.5, 2.5}));
  EXPECT_EQ(log.steps.at(2).grad_norm, 1.25);
}

TEST(LogTraps, EverySpellingOfNotFinite) {
  const RunLog log = parse_run_log(
      pure_line(1, "nan") + "\n" + pure_line(2, "-inf") + "\n" + pure_line(3, "INF") + "\n" +
          pure_line(4, "NaN") + "\n" + pure_line(5, "4.0", "nan") + "\n" +
          R"({"iteration":6,"loss":null,"elapsed_ms":5,"non_finite":{"loss":"-inf"}})" + "\n" +
          R"({"iteration":7,"loss":null,"elapsed_ms":null})" + "\n",
      "x");
  EXPECT_TRUE(std::isnan(log.steps.at(1).loss));
  EXPECT_EQ(log.steps.at(2).loss, -INFINITY);
  EXPECT_EQ(log.steps.at(3).loss, INFINITY);
  EXPECT_TRUE(std::isnan(log.steps.at(4).loss));
  EXPECT_EQ(log.steps.at(5).loss, 4.0);
  EXPECT_FALSE(log.steps.at(5).elapsed_ms.has_value());
  EXPECT_EQ(log.steps.at(6).loss, -INFINITY);
  EXPECT_TRUE(std::isnan(log.steps.at(7).loss));
  ASSERT_EQ(log.warnings.size(), 1U);
  EXPECT_NE(log.warnings[0].find("2 (-inf, line 2)"), std::string::npos) << log.warnings[0];
}

// A Megatron record as it is after a step whose loss is nan, or whose step was skipped: the printer
// leaves the field out.
std::string record_without_loss(int64_t iteration, const std::string& counters) {
  std::string line = megatron_line(iteration, "1.0");
  const std::string field = " loss: 1.0 |",
                    zeros = "skipped iterations:   0 | number of nan iterations:   0";
  line.erase(line.find(field), field.size());
  return line.replace(line.find(zeros), zeros.size(), counters);
}

TEST(LogTraps, ALossThatMegatronLeavesOutIsNotLost) {
  const std::string nan =
      record_without_loss(2, "skipped iterations:   0 | number of nan iterations:   1");
  const RunLog log = parse_run_log(
      megatron_line(1, "1.5") + "\n" + nan + "\n" + megatron_line(3, "3.5") + "\n", "nan");
  ASSERT_TRUE(log.steps.contains(2));
  EXPECT_TRUE(std::isnan(log.steps.at(2).loss));
  EXPECT_EQ(log.steps.at(2).elapsed_ms, 12.5);
  ASSERT_EQ(log.warnings.size(), 1U);
  EXPECT_NE(log.warnings[0].find("not finite at iteration 2 (nan, line 2)"), std::string::npos);

  const std::string skipped =
      record_without_loss(2, "skipped iterations:   1 | number of nan iterations:   0");
  const RunLog other = parse_run_log(megatron_line(1, "1.5") + "\n" + skipped + "\n", "skipped");
  EXPECT_EQ(losses(other), (std::vector{1.5}));
  ASSERT_EQ(other.warnings.size(), 1U);
  EXPECT_NE(other.warnings[0].find("line 2: the record has no field \"loss\""), std::string::npos)
      << other.warnings[0];
}

TEST(LogTraps, SaysWhyNothingWasRead) {
  const auto error = [](const std::string& content) {
    try {
      parse_run_log(content, "x.log");
    } catch (const DataError& fault) {
      return std::string(fault.what());
    }
    return std::string("no error");
  };
  std::string lm = megatron_line(1, "1.0");
  lm.replace(lm.find(" loss: 1.0"), 1, " lm ");
  EXPECT_NE(error(lm + "\n").find("no record in it has a field \"loss\""), std::string::npos)
      << error(lm);
  const std::string line = pure_line(1, "1.0");
  const std::string cut = line.substr(0, line.find("elapsed"));
  EXPECT_NE(error(cut).find("every record in it is cut"), std::string::npos) << error(cut);
  EXPECT_NE(error("\x1f\x8b\x08").find("compressed with gzip"), std::string::npos);
  try {
    read_run_log(log_path(""));
    ADD_FAILURE() << "a folder was read";
  } catch (const DataError& fault) {
    EXPECT_NE(std::string(fault.what()).find("this is a folder"), std::string::npos);
  }
}

TEST(LogTraps, MetricsInFullPrecision) {
  const RunLog log = parse_run_log(
      "\xEF\xBB\xBF"  // a byte order mark
      R"({"iteration":1,"loss":0.1234567890123456,"elapsed_ms":10.25,"memory_allocated":3145728,"memory_reserved":4194304})"
      "\n"
      R"({"iteration":2,"loss":2,"elapsed_ms":11,"memory_allocated":2097152,"memory_reserved":5242880})"
      "\n",
      "metrics.jsonl");
  EXPECT_EQ(log.steps.at(1).loss, 0.1234567890123456);
  EXPECT_EQ(log.steps.at(1).elapsed_ms, 10.25);
  EXPECT_EQ(log.max_allocated_mib, 3.0);
  EXPECT_EQ(log.max_reserved_mib, 5.0);
  EXPECT_EQ(log.steps.at(2).allocated_mib, 2.0);
}

TEST(LogTraps, AShorterRunBehindALongerOneIsTold) {
  const RunLog log = parse_run_log(pure_line(1, "1.0") + "\n" + pure_line(2, "2.0") + "\n" +
                                       pure_line(3, "3.0") + "\n" + pure_line(1, "1.5") + "\n",
                                   "appended");
  EXPECT_EQ(losses(log), (std::vector{1.5, 2.0, 3.0}));
  ASSERT_EQ(log.warnings.size(), 2U);
  EXPECT_NE(log.warnings[1].find("ends at iteration 1"), std::string::npos);
}

TEST(LogTraps, TerminalSequences) {
  EXPECT_EQ(without_ansi("\033[1;32mgreen\033[0m"), "green");
  EXPECT_EQ(without_ansi("a\033]0;title\ab\033]0;title\033\\c"), "abc");
  EXPECT_EQ(without_ansi("a\033(Bb\033"), "aBb");
  EXPECT_EQ(without_ansi("cut \033["), "cut ");
}

}  // namespace
}  // namespace shardloom::study
