#include "shardloom/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <functional>

namespace shardloom {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// What `action` writes to stderr while stderr is a terminal.
std::string on_a_terminal(const std::function<void()>& action) {
  int master = -1;
  int terminal = -1;
  EXPECT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(terminal, STDERR_FILENO);
  action();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(terminal);
  std::string output;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = ::read(master, buffer, sizeof(buffer))) > 0)
    output.append(buffer, static_cast<size_t>(n));
  ::close(master);
  return output;
}

TEST(ProgressBarTest, DrawsBarCountEtaAndNote) {
  const std::string output = on_a_terminal([] {
    ProgressBar bar("train", 4, "it");
    bar.update(2, "loss 2.01");
  });
  EXPECT_THAT(output, AllOf(HasSubstr("train [===============               ] 2/4"),
                            HasSubstr("it/s ETA"), HasSubstr("loss 2.01"), EndsWith("\n")));
}

TEST(ProgressBarTest, DrawsTheLastUpdateHoweverSoon) {
  const std::string output = on_a_terminal([] {
    ProgressBar bar("train", 3);
    for (int i = 1; i <= 3; ++i) bar.update(i);
  });
  EXPECT_THAT(output, HasSubstr("3/3"));
}

TEST(ProgressBarTest, ClearRemovesTheLine) {
  const std::string output = on_a_terminal([] {
    ProgressBar bar("train", 4);
    bar.update(1);
    bar.clear();
  });
  EXPECT_THAT(output, EndsWith("\r\033[K"));
}

TEST(ProgressBarTest, SurvivesAnUnknownTotalAndOverrun) {
  const std::string output = on_a_terminal([] {
    ProgressBar bar("check", 0);
    bar.update(5);
  });
  EXPECT_THAT(output,
              AllOf(HasSubstr("[==============================] 5/1"), HasSubstr("ETA 00:00")));
}

TEST(ProgressBarTest, IsSilentWhenDisabled) {
  const std::string output = on_a_terminal([] {
    ProgressBar bar("train", 4, "it", false);
    bar.update(4);
  });
  EXPECT_EQ(output, "");
}

TEST(ProgressBarTest, IsSilentOffATerminal) {
  ::testing::internal::CaptureStderr();
  {
    ProgressBar bar("train", 4);
    bar.update(4);
    bar.clear();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressBarTest, FormatsSeconds) {
  EXPECT_EQ(ProgressBar::format_seconds(0), "00:00");
  EXPECT_EQ(ProgressBar::format_seconds(-3), "00:00");
  EXPECT_EQ(ProgressBar::format_seconds(59.6), "01:00");
  EXPECT_EQ(ProgressBar::format_seconds(245), "04:05");
  EXPECT_EQ(ProgressBar::format_seconds(3723), "1:02:03");
}

}  // namespace
}  // namespace shardloom
