#include "shardloom/base/log.h"

#include <gtest/gtest.h>

namespace shardloom {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { log::set_rank(0, 1); }

  // What the three levels print on stderr.
  std::string output() {
    ::testing::internal::CaptureStderr();
    log::info("step {}", 1);
    log::warn("slow");
    log::error("bad {}", "file");
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, OneProcessShowsNoRank) {
  EXPECT_EQ(output(), "step 1\nwarning: slow\nerror: bad file\n");
}

TEST_F(LogTest, FirstOfSeveralShowsItsRankOnProblems) {
  log::set_rank(0, 2);
  EXPECT_EQ(output(), "step 1\n[rank 0] warning: slow\n[rank 0] error: bad file\n");
}

TEST_F(LogTest, OthersKeepSilentButForProblems) {
  log::set_rank(1, 2);
  EXPECT_EQ(output(), "[rank 1] warning: slow\n[rank 1] error: bad file\n");
}

}  // namespace
}  // namespace shardloom
